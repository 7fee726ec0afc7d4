//! Rows 1, 12, 13: any write goes wrong, with the operator's death or without, statuses are wiped, two leaders overlap.

use at_operator::api::v1alpha1::{At, Phase};
use k8s_openapi::api::core::v1::Pod;
use kubewright_cluster::faults::Faults;
use operator_kit::{History, World, assert_quiet, eventually, go_wrong_everywhere};
use serde_json::{Value, json};

use crate::scene::{PAST, SOON, at, pod, reaches, status, world};

/// Takes away what the operator remembers outside of the pod.
async fn forget_run(world: &World) {
    world.edit::<At>("lunch", json!({"metadata": {"annotations": Value::Null}})).await;
}

async fn wipe_status(world: &World) {
    world.edit_status::<At>("lunch", Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_while_the_pod_is_deleted_runs_it_once() {
    go_wrong_everywhere(world, async |world| {
        let mut history = History::of::<Pod>(world);
        world.create(at(SOON, "echo YAY")).await;
        // As soon as there is a pod, recorded or not, someone deletes it.
        pod(world).await;
        world.delete::<Pod>("lunch-pod").await;
        reaches(world, Phase::Done, "PodLost").await;
        assert_eq!(history.created(), 1);
        assert!(world.pods().await.is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn row_12_a_wiped_status_is_rebuilt_and_nothing_runs_again() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Pod>(&world);
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
    assert_eq!(history.created(), 1);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_12_the_annotation_may_be_lost_as_well() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = History::of::<Pod>(&world);
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
    assert_eq!(history.created(), 1);
    operator.stop().await;
}
