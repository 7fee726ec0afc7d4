//! The rows that hold for every operator, and what they show of this one beyond the common.

use at_operator::api::v1alpha1::{At, Phase};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubewright_cluster::faults::{Faults, Verb};
use operator_kit::{History, Invalid, Subject, World, assert_quiet, eventually, minutes};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{PAST, SOON, at, pod, reaches, world};

/// An At whose time comes a minute after the beginning.
struct Lunch;

impl Subject for Lunch {
    type Child = Pod;
    type Resource = At;

    const EVENTS: usize = 3;
    const MADE: usize = 1;
    const NAME: &'static str = "lunch";
    const ONCE: bool = true;
    const RECORDS: bool = true;
    const REFUSED: &'static str = "PodRefused";
    const WATCHED: usize = 2;
    // PENDING, pod, record, finalizer, RUNNING, DONE.
    const WRITES: usize = 6;

    async fn world() -> World {
        world().await
    }

    fn sample() -> At {
        at(SOON, "echo YAY")
    }

    fn lie() -> Value {
        json!({"phase": "DONE"})
    }

    async fn seen(world: &World) {
        reaches(world, Phase::Pending, "Waiting").await;
    }

    async fn settled(world: &World) {
        let status = reaches(world, Phase::Running, "Running").await;
        assert_eq!(status.pod_uid, pod(world).await.metadata.uid);
    }

    async fn finish(world: &World) {
        world.end_pod("lunch-pod", 0).await;
        let status = reaches(world, Phase::Done, "Succeeded").await;
        assert_eq!(status.exit_code, Some(0));
        assert!(pod(world).await.finalizers().is_empty());
    }

    async fn disturb(world: &World) -> usize {
        world.delete::<Pod>("lunch-pod").await;
        reaches(world, Phase::Done, "PodLost").await;
        0
    }
}

impl Invalid for Lunch {
    const REASON: &'static str = "InvalidSchedule";

    fn invalid() -> At {
        at("tomorrow", "echo YAY")
    }

    fn mend() -> Value {
        json!({"spec": {"schedule": SOON}})
    }
}

operator_kit::rows!(Lunch, invalid);

#[tokio::test(start_paused = true)]
async fn row_08_an_at_made_again_waits_for_the_old_pod_and_runs() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Pod>(&world);
    let operator = world.start(&faults);
    world.create(at(PAST, "echo YAY")).await;
    reaches(&world, Phase::Running, "Running").await;
    // Something holds the old pod.
    world.edit::<Pod>("lunch-pod", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    let old = pod(&world).await.metadata.uid;
    world.delete::<At>("lunch").await;
    world.create(at(PAST, "echo YAY")).await;
    reaches(&world, Phase::Pending, "NameConflict").await;
    world.end_pod("lunch-pod", 0).await;
    sleep(minutes(5)).await;
    reaches(&world, Phase::Pending, "NameConflict").await;

    world.edit::<Pod>("lunch-pod", json!({"metadata": {"finalizers": null}})).await;
    let status = reaches(&world, Phase::Running, "Running").await;
    assert!(status.pod_uid.is_some() && status.pod_uid != old);
    assert_eq!(history.created(), 2);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_08_an_at_made_again_lets_the_old_pod_go_long_before_it_runs() {
    let (world, faults) = (world().await, Faults::new());
    // The record is never written, so the pod keeps its finalizer.
    faults.on(&[Verb::Patch], "ats").always().refuse(500, "InternalError");
    let operator = world.start(&faults);
    world.create(at(PAST, "echo YAY")).await;
    assert!(!pod(&world).await.finalizers().is_empty());
    world.delete::<At>("lunch").await;
    world.create(at("2020-06-01T00:00:00Z", "echo YAY")).await;
    eventually("the old pod is gone", async || world.pods().await.is_empty()).await;
    reaches(&world, Phase::Pending, "Waiting").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_10_waiting_writes_nothing() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(at("2020-06-01T00:00:00Z", "echo YAY")).await;
    reaches(&world, Phase::Pending, "Waiting").await;
    assert_quiet(&faults).await;
    operator.stop().await;
    let operator = world.start(&faults);
    assert_quiet(&faults).await;
    world.edit::<At>("lunch", json!({"spec": {"schedule": PAST}})).await;
    reaches(&world, Phase::Running, "Running").await;
    assert_quiet(&faults).await;
    operator.stop().await;
}
