//! Rows 1, 12, 13: any write goes wrong, with the operator's death or without, statuses are wiped, two leaders overlap.

use std::time::Duration;

use at_operator::api::v1alpha1::{At, Phase};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    kit::{World, assert_quiet, eventually, go_wrong_everywhere, minutes},
    kubelet::PodHistory,
    scene::{PAST, SOON, at, pod, reaches, status, world},
};

/// Takes away what the operator remembers outside of the pod.
async fn forget_run(world: &World) {
    world.edit::<At>("lunch", json!({"metadata": {"annotations": Value::Null}})).await;
}

async fn wipe_status(world: &World) {
    world.edit_status::<At>("lunch", Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_runs_it_once() {
    let mishaps = go_wrong_everywhere(world, async |world| {
        let mut history = PodHistory::of(world);
        world.create(at(SOON, "echo YAY")).await;
        reaches(world, Phase::Running, "Running").await;
        world.end_pod("lunch-pod", 0).await;
        let status = reaches(world, Phase::Done, "Succeeded").await;
        assert_eq!(status.exit_code, Some(0));
        assert!(pod(world).await.finalizers().is_empty());
        assert_eq!(history.created("lunch"), 1);
        // An event may be lost with the operator, but is not told twice.
        let mut events = world.events("lunch").await;
        events.sort();
        assert!(events.windows(2).all(|two| two[0] != two[1]), "{events:?}");
    })
    .await;
    // PENDING, pod, record, finalizer, RUNNING, DONE; four mishaps each.
    assert!(mishaps >= 24, "{mishaps}");
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_while_the_pod_is_deleted_runs_it_once() {
    go_wrong_everywhere(world, async |world| {
        let mut history = PodHistory::of(world);
        world.create(at(SOON, "echo YAY")).await;
        // As soon as there is a pod, recorded or not, someone deletes it.
        pod(world).await;
        world.delete::<Pod>("lunch-pod").await;
        reaches(world, Phase::Done, "PodLost").await;
        assert_eq!(history.created("lunch"), 1);
        assert!(world.pods().await.is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_while_the_at_is_deleted_leaves_nothing() {
    go_wrong_everywhere(world, async |world| {
        world.create(at(PAST, "echo YAY")).await;
        pod(world).await;
        world.delete::<At>("lunch").await;
        eventually("the pod is gone", async || world.pods().await.is_empty()).await;
        assert!(world.list::<At>().await.is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_while_the_at_is_replaced_runs_both_once() {
    go_wrong_everywhere(world, async |world| {
        let mut history = PodHistory::of(world);
        world.create(at(PAST, "echo YAY")).await;
        pod(world).await;
        world.delete::<At>("lunch").await;
        world.create(at(PAST, "echo YAY")).await;
        let status = reaches(world, Phase::Running, "Running").await;
        assert_eq!(status.pod_uid, pod(world).await.metadata.uid);
        assert_eq!(history.created("lunch"), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn row_12_a_wiped_status_is_rebuilt_and_nothing_runs_again() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = PodHistory::of(&world);
    let operator = world.start(&faults);
    world.create(at(PAST, "echo YAY")).await;
    let running = reaches(&world, Phase::Running, "Running").await;
    wipe_status(&world).await;
    eventually("it is rebuilt", async || status(&world, "lunch").await.phase.is_some()).await;
    assert_eq!(status(&world, "lunch").await.pod_uid, running.pod_uid);

    world.end_pod("lunch-pod", 0).await;
    let done = reaches(&world, Phase::Done, "Succeeded").await;
    wipe_status(&world).await;
    let rebuilt = reaches(&world, Phase::Done, "Succeeded").await;
    assert_eq!((rebuilt.exit_code, rebuilt.completion_time), (done.exit_code, done.completion_time));

    // Also when the pod is gone, and when the operator starts anew.
    world.delete::<Pod>("lunch-pod").await;
    wipe_status(&world).await;
    reaches(&world, Phase::Done, "PodLost").await;
    operator.stop().await;
    wipe_status(&world).await;
    let operator = world.start(&faults);
    reaches(&world, Phase::Done, "PodLost").await;
    assert_quiet(&faults).await;
    assert_eq!(history.created("lunch"), 1);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_12_a_status_written_by_hand_is_corrected() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(at(SOON, "echo YAY")).await;
    reaches(&world, Phase::Pending, "Waiting").await;
    world.edit_status::<At>("lunch", json!({"phase": "DONE"})).await;
    reaches(&world, Phase::Pending, "Waiting").await;
    reaches(&world, Phase::Running, "Running").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_12_the_annotation_may_be_lost_as_well() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = PodHistory::of(&world);
    let operator = world.start(&faults);
    world.create(at(PAST, "echo YAY")).await;
    reaches(&world, Phase::Running, "Running").await;
    world.end_pod("lunch-pod", 0).await;
    reaches(&world, Phase::Done, "Succeeded").await;

    // The pod is a witness, and so is the status: what `kubectl replace` takes is written again.
    for delete in [false, true] {
        if delete {
            world.delete::<Pod>("lunch-pod").await;
        }
        forget_run(&world).await;
        eventually("it is recorded again", async || {
            world.get::<At>("lunch").await.metadata.annotations.is_some_and(|it| it.contains_key("cnat.d2iq.com/run"))
        })
        .await;
    }
    reaches(&world, Phase::Done, "Succeeded").await;
    assert_quiet(&faults).await;
    assert_eq!(history.created("lunch"), 1);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_13_two_leaders_run_it_once() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = PodHistory::of(&world);
    let (one, two) = (world.start(&faults), world.start(&faults));
    for number in 0..10 {
        let mut at = at(SOON, "echo YAY");
        at.metadata.name = Some(format!("lunch-{number}"));
        world.create(at).await;
    }
    sleep(minutes(2)).await;
    for number in 0..10 {
        assert_eq!(status(&world, &format!("lunch-{number}")).await.phase, Some(Phase::Running));
        world.end_pod(&format!("lunch-{number}-pod"), 0).await;
    }
    assert_quiet(&faults).await;
    for number in 0..10 {
        assert_eq!(history.created(&format!("lunch-{number}")), 1);
    }
    one.stop().await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_07_and_13_a_leader_with_a_stale_cache_does_not_run_it_again() {
    let world = world().await;
    let mut history = PodHistory::of(&world);
    let (stale, faults) = (Faults::new(), Faults::new());
    world.create(at(SOON, "echo YAY")).await;
    let first = world.start(&faults);
    reaches(&world, Phase::Pending, "Waiting").await;
    first.stop().await;
    // The old leader lists what there is now, and then sees nothing more; what it asks is answered late.
    let gate = stale.on(&[Verb::Watch], "*").always().hold();
    let slow = stale.on(&[Verb::Get], "*").always().hold();
    let old = world.start(&stale);
    sleep(Duration::from_secs(5)).await;

    let new = world.start(&faults);
    reaches(&world, Phase::Running, "Running").await;
    world.delete::<Pod>("lunch-pod").await;
    reaches(&world, Phase::Done, "PodLost").await;
    // It still believes that the time has just come, and now its question arrives.
    slow.open();
    sleep(minutes(10)).await;
    assert_eq!(history.created("lunch"), 1);
    gate.open();
    sleep(minutes(10)).await;
    assert_eq!(history.created("lunch"), 1);
    reaches(&world, Phase::Done, "PodLost").await;
    old.stop().await;
    new.stop().await;
}
