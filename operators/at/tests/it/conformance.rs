//! The conformance tests, and further tests of the same faults that are specific to this operator.

use at_operator::api::v1alpha1::{At, Phase};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubewright_cluster::faults::{Faults, Verb};
use operator_kit::{History, Invalid, Subject, TestEnv, assert_quiet, eventually, minutes};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixtures::{PAST, SOON, at, env, pod, reaches};

/// An At whose time is a minute after the start.
struct Lunch;

impl Subject for Lunch {
    type Child = Pod;
    type Resource = At;

    const EVENTS: usize = 3;
    const CHILDREN: usize = 1;
    const NAME: &'static str = "lunch";
    const AT_MOST_ONCE: bool = true;
    const HAS_RECORD: bool = true;
    const REFUSED: &'static str = "PodRefused";
    const CHILD_EVENTS: usize = 2;
    // PENDING, pod, record, finalizer, RUNNING, DONE.
    const WRITES: usize = 6;

    async fn env() -> TestEnv {
        env().await
    }

    fn sample() -> At {
        at(SOON, "echo YAY")
    }

    async fn seen(env: &TestEnv) {
        reaches(env, Phase::Pending, "Waiting").await;
    }

    async fn settled(env: &TestEnv) {
        let status = reaches(env, Phase::Running, "Running").await;
        assert_eq!(status.pod_uid, pod(env).await.metadata.uid);
    }

    async fn finish(env: &TestEnv) {
        env.end_pod("lunch-pod", 0).await;
        let status = reaches(env, Phase::Done, "Succeeded").await;
        assert_eq!(status.exit_code, Some(0));
        assert!(pod(env).await.finalizers().is_empty());
    }

    async fn delete_child(env: &TestEnv) -> usize {
        env.delete::<Pod>("lunch-pod").await;
        reaches(env, Phase::Done, "PodLost").await;
        0
    }
}

impl Invalid for Lunch {
    const REASON: &'static str = "InvalidSchedule";

    fn invalid() -> At {
        at("tomorrow", "echo YAY")
    }

    fn valid_patch() -> Value {
        json!({"spec": {"schedule": SOON}})
    }
}

operator_kit::conformance_tests!(Lunch, invalid);

#[tokio::test(start_paused = true)]
async fn a_recreated_at_waits_for_the_old_pod_and_runs() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Pod>(&env);
    let operator = env.start(&faults);
    env.create(at(PAST, "echo YAY")).await;
    reaches(&env, Phase::Running, "Running").await;
    // A finalizer holds the old pod.
    env.edit::<Pod>("lunch-pod", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    let old = pod(&env).await.metadata.uid;
    env.delete::<At>("lunch").await;
    env.create(at(PAST, "echo YAY")).await;
    reaches(&env, Phase::Pending, "NameConflict").await;
    env.end_pod("lunch-pod", 0).await;
    sleep(minutes(5)).await;
    reaches(&env, Phase::Pending, "NameConflict").await;

    env.edit::<Pod>("lunch-pod", json!({"metadata": {"finalizers": null}})).await;
    let status = reaches(&env, Phase::Running, "Running").await;
    assert!(status.pod_uid.is_some() && status.pod_uid != old);
    assert_eq!(history.created(), 2);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_recreated_at_releases_the_old_pod_long_before_its_time() {
    let (env, faults) = (env().await, Faults::new());
    // The run is never recorded, so the pod keeps its finalizer.
    faults.on(&[Verb::Patch], "ats").always().refuse(500, "InternalError");
    let operator = env.start(&faults);
    env.create(at(PAST, "echo YAY")).await;
    assert!(!pod(&env).await.finalizers().is_empty());
    env.delete::<At>("lunch").await;
    env.create(at("2020-06-01T00:00:00Z", "echo YAY")).await;
    eventually("the old pod is gone", async || env.pods().await.is_empty()).await;
    reaches(&env, Phase::Pending, "Waiting").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_writes_nothing() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(at("2020-06-01T00:00:00Z", "echo YAY")).await;
    reaches(&env, Phase::Pending, "Waiting").await;
    assert_quiet(&faults).await;
    operator.stop().await;
    let operator = env.start(&faults);
    assert_quiet(&faults).await;
    env.edit::<At>("lunch", json!({"spec": {"schedule": PAST}})).await;
    reaches(&env, Phase::Running, "Running").await;
    assert_quiet(&faults).await;
    operator.stop().await;
}
