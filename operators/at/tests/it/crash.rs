//! Faults and crashes at any write, and wiped statuses.

use at_operator::api::v1alpha1::{At, Phase};
use k8s_openapi::api::core::v1::Pod;
use kubewright::simulation::env::{History, TestEnv, assert_quiet, eventually, with_a_fault_at_each_write};
use kubewright_cluster::faults::Faults;
use serde_json::{Value, json};

use crate::fixtures::{PAST, SOON, at, env, pod, reaches, status};

/// Removes the record of the run.
async fn forget_run(env: &TestEnv) {
    env.edit::<At>("lunch", json!({"metadata": {"annotations": Value::Null}})).await;
}

async fn wipe_status(env: &TestEnv) {
    env.edit_status::<At>("lunch", Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_while_the_pod_is_deleted_runs_it_once() {
    with_a_fault_at_each_write(env, async |env| {
        let mut history = History::of::<Pod>(env);
        env.create(at(SOON, "echo YAY")).await;
        // As soon as there is a pod, recorded or not, a user deletes it.
        pod(env).await;
        env.delete::<Pod>("lunch-pod").await;
        reaches(env, Phase::Done, "PodLost").await;
        assert_eq!(history.created(), 1);
        assert!(env.pods().await.is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wiped_status_is_rebuilt_and_nothing_runs_again() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Pod>(&env);
    let operator = env.start(&faults);
    env.create(at(PAST, "echo YAY")).await;
    let running = reaches(&env, Phase::Running, "Running").await;
    wipe_status(&env).await;
    eventually("it is rebuilt", async || status(&env, "lunch").await.phase.is_some()).await;
    assert_eq!(status(&env, "lunch").await.pod_uid, running.pod_uid);

    env.end_pod("lunch-pod", 0).await;
    let done = reaches(&env, Phase::Done, "Succeeded").await;
    wipe_status(&env).await;
    let rebuilt = reaches(&env, Phase::Done, "Succeeded").await;
    assert_eq!((rebuilt.exit_code, rebuilt.completion_time), (done.exit_code, done.completion_time));

    // Also when the pod is gone, and when the operator restarts.
    env.delete::<Pod>("lunch-pod").await;
    wipe_status(&env).await;
    reaches(&env, Phase::Done, "PodLost").await;
    operator.stop().await;
    wipe_status(&env).await;
    let operator = env.start(&faults);
    reaches(&env, Phase::Done, "PodLost").await;
    assert_quiet(&faults).await;
    assert_eq!(history.created(), 1);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_annotation_is_restored_from_jobs_or_status() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Pod>(&env);
    let operator = env.start(&faults);
    env.create(at(PAST, "echo YAY")).await;
    reaches(&env, Phase::Running, "Running").await;
    env.end_pod("lunch-pod", 0).await;
    reaches(&env, Phase::Done, "Succeeded").await;

    // Both the pod and the status show the run, so the annotation that `kubectl replace` removes is written again.
    for delete in [false, true] {
        if delete {
            env.delete::<Pod>("lunch-pod").await;
        }
        forget_run(&env).await;
        eventually("it is recorded again", async || {
            env.get::<At>("lunch").await.metadata.annotations.is_some_and(|it| it.contains_key("cnat.d2iq.com/run"))
        })
        .await;
    }
    reaches(&env, Phase::Done, "Succeeded").await;
    assert_quiet(&faults).await;
    assert_eq!(history.created(), 1);
    operator.stop().await;
}
