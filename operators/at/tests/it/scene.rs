//! The world of these tests: Ats, and the pod of each.

use at_operator::api::v1alpha1::{At, AtSpec, AtStatus, Phase};
use k8s_openapi::api::core::v1::Pod;
use kubewright::condition;
use operator_kit::{World, eventually};

/// A schedule in the past of every test.
pub(crate) const PAST: &str = "2020-01-30T09:59:00Z";
/// A schedule one minute after the beginning of every test.
pub(crate) const SOON: &str = "2020-01-30T10:01:00Z";

pub(crate) async fn world() -> World {
    World::new(at_operator::register, at_operator::crds()).await
}

/// An At called `lunch`.
pub(crate) fn at(schedule: &str, command: &str) -> At {
    At::new("lunch", AtSpec { schedule: schedule.into(), command: command.into(), ..AtSpec::default() })
}

pub(crate) async fn status(world: &World, name: &str) -> AtStatus {
    world.get::<At>(name).await.status.unwrap_or_default()
}

/// The status and reason of the condition `Ready`.
pub(crate) fn ready(status: &AtStatus) -> (String, String) {
    condition::get(&status.conditions, "Ready").map(|it| (it.status.clone(), it.reason.clone())).unwrap_or_default()
}

pub(crate) fn is_true(status: &AtStatus, type_: &str) -> bool {
    condition::is_true(&status.conditions, type_)
}

/// Waits until the At `lunch` is in this phase for this reason, and gives its status.
pub(crate) async fn reaches(world: &World, phase: Phase, reason: &str) -> AtStatus {
    let mut last = AtStatus::default();
    eventually(&format!("the At is {phase:?} for {reason}"), async || {
        last = status(world, "lunch").await;
        last.phase == Some(phase) && ready(&last).1 == reason
    })
    .await;
    last
}

/// Waits for the pod of the At `lunch`.
pub(crate) async fn pod(world: &World) -> Pod {
    let mut found = None;
    eventually("the pod exists", async || {
        found = world.api::<Pod>().get_opt("lunch-pod").await.unwrap();
        found.is_some()
    })
    .await;
    found.unwrap()
}
