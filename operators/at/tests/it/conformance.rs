//! The conformance tests, and further tests of the same faults that are specific to this operator.

use at_operator::api::v1alpha1::{At, Phase};
use k8s_openapi::api::core::v1::Pod;
use kubewright::{
    prelude::*,
    simulation::{
        Span, World,
        conformance::{Invalid, Subject},
        conformance_tests,
        env::{History, assert_quiet, eventually},
    },
};
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixtures::{PAST, SOON, at, env, pod, reaches};

/// An At whose time is a minute after the start.
struct Lunch;

impl Subject for Lunch {
    type Child = Pod;
    type Resource = At;

    const AT_MOST_ONCE: bool = true;
    const CHILDREN: usize = 1;
    const NAME: &'static str = "lunch";
    const REFUSED: &'static str = "PodRefused";

    fn register(manager: Manager) -> Manager {
        at_operator::register(manager)
    }

    fn sample() -> At {
        at(SOON, "echo YAY")
    }

    fn is_seen(world: &World) -> bool {
        phase(world).is_some()
    }

    fn is_settled(world: &World) -> bool {
        matches!(phase(world), Some(Phase::Running | Phase::Done))
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

fn phase(world: &World) -> Option<Phase> {
    world.get::<At>(Lunch::NAME)?.status?.phase
}

conformance_tests!(Lunch, invalid);

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
    sleep(5.minutes()).await;
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
