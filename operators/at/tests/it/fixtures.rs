//! Ats and their pods.

use at_operator::api::v1alpha1::{At, AtSpec, AtStatus, Phase};
use k8s_openapi::api::core::v1::Pod;
use kubewright::condition;
use kubewright::simulation::env::{TestEnv, eventually};

/// A schedule before the start of every test.
pub(crate) const PAST: &str = "2020-01-30T09:59:00Z";
/// A schedule one minute after the start of every test.
pub(crate) const SOON: &str = "2020-01-30T10:01:00Z";

pub(crate) async fn env() -> TestEnv {
    TestEnv::new(at_operator::register, at_operator::crds()).await
}

/// An At called `lunch`.
pub(crate) fn at(schedule: &str, command: &str) -> At {
    At::new("lunch", AtSpec { schedule: schedule.into(), command: command.into(), ..AtSpec::default() })
}

pub(crate) async fn status(env: &TestEnv, name: &str) -> AtStatus {
    env.get::<At>(name).await.status.unwrap_or_default()
}

/// Returns the status and reason of the condition `Ready`.
pub(crate) fn ready(status: &AtStatus) -> (String, String) {
    condition::get(&status.conditions, "Ready").map(|it| (it.status.clone(), it.reason.clone())).unwrap_or_default()
}

pub(crate) fn is_true(status: &AtStatus, type_: &str) -> bool {
    condition::is_true(&status.conditions, type_)
}

/// Waits until the At `lunch` has a phase and a reason, and returns its status.
pub(crate) async fn reaches(env: &TestEnv, phase: Phase, reason: &str) -> AtStatus {
    let mut last = AtStatus::default();
    eventually(&format!("the At is {phase:?} for {reason}"), async || {
        last = status(env, "lunch").await;
        last.phase == Some(phase) && ready(&last).1 == reason
    })
    .await;
    last
}

/// Waits for the pod of the At `lunch`.
pub(crate) async fn pod(env: &TestEnv) -> Pod {
    let mut found = None;
    eventually("the pod exists", async || {
        found = env.api::<Pod>().get_opt("lunch-pod").await.unwrap();
        found.is_some()
    })
    .await;
    found.unwrap()
}
