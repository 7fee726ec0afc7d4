//! Rows 2 to 16, which hold for every operator.

use at_operator::api::v1alpha1::{At, Phase};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, PropagationPolicy},
};
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    kit::{assert_quiet, eventually, minutes},
    kubelet::PodHistory,
    scene::{PAST, SOON, at, pod, reaches, ready, status, world},
};

#[tokio::test(start_paused = true)]
async fn row_02_a_lost_answer_to_the_create_is_found_again() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = PodHistory::of(&world);
    let lost = faults.on(&[Verb::Create], "pods").lose_answer();
    let operator = world.start(&faults);
    world.create(at(PAST, "echo YAY")).await;
    let status = reaches(&world, Phase::Running, "Running").await;
    assert_eq!(status.pod_uid, pod(&world).await.metadata.uid);
    assert_eq!((lost.hits(), history.created("lunch")), (1, 1));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_03_conflicts_on_the_status_are_retried() {
    let (world, faults) = (world().await, Faults::new());
    let conflicts = faults.on(&[Verb::Patch], "ats/status").times(4).refuse(409, "Conflict");
    let operator = world.start(&faults);
    world.create(at(PAST, "echo YAY")).await;
    reaches(&world, Phase::Running, "Running").await;
    world.end_pod("lunch-pod", 0).await;
    reaches(&world, Phase::Done, "Succeeded").await;
    assert_eq!(conflicts.hits(), 4);
    let events = world.events("lunch").await;
    assert!(events.iter().all(|event| event.starts_with("Normal PhaseChange")), "{events:?}");
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_04_a_server_in_trouble_is_waited_for() {
    for code in [429, 500, 503, 504] {
        let (world, faults) = (world().await, Faults::new());
        let mut history = PodHistory::of(&world);
        faults.on(Verb::WRITES, "*").times(10).retry_after(7).refuse(code, "Trouble");
        let operator = world.start(&faults);
        world.create(at(PAST, "echo YAY")).await;
        let begun = world.now();
        reaches(&world, Phase::Running, "Running").await;
        assert!(world.now().duration_since(begun) >= SignedDuration::from_secs(7), "{code}: Retry-After is honoured");
        assert_eq!(history.created("lunch"), 1);
        assert_quiet(&faults).await;
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn row_05_deletions_during_a_dropped_watch_are_noticed() {
    let (world, faults) = (world().await, Faults::new());
    // The watch breaks after the pod's beginning, doesn't begin again for a while, and is then told to list anew.
    let cut = faults.on(&[Verb::Watch], "pods").cut_after(2);
    let refused = faults.on(&[Verb::Watch], "pods").times(5).refuse(500, "InternalError");
    let expired = faults.on(&[Verb::Watch], "pods").expire();
    let operator = world.start(&faults);
    world.create(at(PAST, "echo YAY")).await;
    reaches(&world, Phase::Running, "Running").await;
    world.delete::<Pod>("lunch-pod").await;
    reaches(&world, Phase::Done, "PodLost").await;
    assert_eq!((cut.hits(), refused.hits(), expired.hits()), (1, 5, 1));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_06_doubled_and_delayed_events_lead_to_the_same() {
    let faulty: [fn(&Faults); 2] = [
        |faults| drop(faults.on(&[Verb::Watch], "*").always().double()),
        |faults| drop(faults.on(&[Verb::Watch], "*").always().delay(minutes(1))),
    ];
    for fault in faulty {
        let (world, faults) = (world().await, Faults::new());
        let mut history = PodHistory::of(&world);
        fault(&faults);
        let operator = world.start(&faults);
        world.create(at(SOON, "echo YAY")).await;
        reaches(&world, Phase::Running, "Running").await;
        world.end_pod("lunch-pod", 0).await;
        reaches(&world, Phase::Done, "Succeeded").await;
        sleep(minutes(5)).await;
        assert_quiet(&faults).await;
        assert_eq!(history.created("lunch"), 1);
        let events = world.events("lunch").await;
        assert_eq!(events.len(), 3, "{events:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn row_08_an_at_made_again_waits_for_the_old_pod_and_runs() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = PodHistory::of(&world);
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
    assert_eq!(history.created("lunch"), 2);
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
async fn row_09_an_at_that_is_being_deleted_starts_nothing() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = PodHistory::of(&world);
    let mut held = at(SOON, "echo YAY");
    held.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    world.create(held).await;
    let operator = world.start(&faults);
    reaches(&world, Phase::Pending, "Waiting").await;
    world.delete::<At>("lunch").await;
    assert_quiet(&faults).await;
    assert_eq!(history.created("lunch"), 0);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_09_foreground_deletion_takes_the_pod_along() {
    let (world, faults) = (world().await, Faults::new());
    // The record is never written, so the pod keeps its finalizer.
    faults.on(&[Verb::Patch], "ats").always().refuse(500, "InternalError");
    let operator = world.start(&faults);
    world.create(at(PAST, "echo YAY")).await;
    assert!(!pod(&world).await.finalizers().is_empty());
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    world.api::<At>().delete("lunch", &foreground).await.unwrap();
    eventually("all is gone", async || world.pods().await.is_empty() && world.list::<At>().await.is_empty()).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_10_a_steady_state_writes_nothing() {
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

#[tokio::test(start_paused = true)]
async fn row_11_an_invalid_spec_is_not_retried() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(at("tomorrow", "echo YAY")).await;
    let status = reaches(&world, Phase::Pending, "InvalidSchedule").await;
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(status.conditions[0].observed_generation, Some(1));
    sleep(minutes(1)).await;
    faults.forget();
    sleep(minutes(60)).await;
    let requests: Vec<_> = faults.seen().into_iter().filter(|seen| seen.request.verb != Verb::Watch).collect();
    assert!(requests.is_empty(), "{requests:?}");
    world.edit::<At>("lunch", json!({"spec": {"schedule": "next week"}})).await;
    eventually("the edit is seen", async || status_generation(&world).await == Some(2)).await;
    operator.stop().await;
}

async fn status_generation(world: &crate::kit::World) -> Option<i64> {
    status(world, "lunch").await.observed_generation
}

#[tokio::test(start_paused = true)]
async fn row_14_a_refused_pod_is_told_in_the_servers_words_and_tried_again_slowly() {
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid")] {
        let (world, faults) = (world().await, Faults::new());
        let message = "pods \"lunch-pod\" is forbidden: exceeded quota: small";
        let refused = faults.on(&[Verb::Create], "pods").always().refuse_with(code, reason, message);
        let operator = world.start(&faults);
        world.create(at(PAST, "echo YAY")).await;
        let status = reaches(&world, Phase::Pending, "PodRefused").await;
        assert_eq!(status.conditions.iter().find(|it| it.type_ == "Ready").unwrap().message, message);
        sleep(minutes(60)).await;
        assert!((10..=200).contains(&refused.hits()), "{}", refused.hits());

        // Another At isn't held up.
        let mut other = at("tomorrow", "echo YAY");
        other.metadata.name = Some("other".into());
        world.create(other).await;
        eventually("the other is told", async || {
            ready(&crate::scene::status(&world, "other").await).1 == "InvalidSchedule"
        })
        .await;
        faults.clear();
        reaches(&world, Phase::Running, "Running").await;
        let events = world.events("lunch").await;
        assert_eq!(events.iter().filter(|event| event.starts_with("Warning PodRefused")).count(), 1, "{events:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn row_16_when_faults_stop_it_converges_soon_and_for_good() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = PodHistory::of(&world);
    faults.on(Verb::WRITES, "*").skip(1).times(3).lose_answer();
    faults.on(Verb::WRITES, "*").times(20).refuse(503, "ServiceUnavailable");
    faults.on(Verb::READS, "*").skip(3).times(20).lose_request();
    let operator = world.start(&faults);
    world.create(at(PAST, "echo YAY")).await;
    sleep(minutes(20)).await;
    faults.clear();
    let stopped = world.now();
    reaches(&world, Phase::Running, "Running").await;
    assert!(world.now().duration_since(stopped) < SignedDuration::from_mins(20));
    assert_quiet(&faults).await;
    assert_eq!(history.created("lunch"), 1);
    operator.stop().await;
}
