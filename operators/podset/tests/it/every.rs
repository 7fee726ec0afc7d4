//! Rows 2 to 16, which hold for every operator.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    kit::{assert_quiet, eventually, minutes},
    kubelet::PodHistory,
    scene::{First, Flavour, Second, active, reaches, scale, told, world},
};

async fn loses_answers<K: Flavour>() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = PodHistory::of(&world);
    let lost = faults.on(&[Verb::Create], "pods").times(3).lose_answer();
    let operator = world.start(&faults);
    world.create(K::web(6)).await;
    reaches::<K>(&world, 6).await;
    assert_quiet(&faults).await;
    assert_eq!((lost.hits(), history.created(K::APP)), (3, 6));
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_02_lost_answers_to_creates_make_no_pod_too_many() {
    loses_answers::<First>().await;
    loses_answers::<Second>().await;
}

#[tokio::test(start_paused = true)]
async fn row_03_conflicts_on_the_status_are_retried() {
    let (world, faults) = (world().await, Faults::new());
    let conflicts = faults.on(&[Verb::Patch], "podsets/status").times(4).refuse(409, "Conflict");
    let operator = world.start(&faults);
    world.create(Second::web(3)).await;
    reaches::<Second>(&world, 3).await;
    assert_eq!(conflicts.hits(), 4);
    assert!(world.events("web").await.is_empty());
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
        world.create(Second::web(3)).await;
        let begun = world.now();
        reaches::<Second>(&world, 3).await;
        assert!(world.now().duration_since(begun) >= SignedDuration::from_secs(7), "{code}: Retry-After is honoured");
        assert_eq!(history.created("web"), 3);
        assert_quiet(&faults).await;
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn row_05_deletions_during_a_dropped_watch_are_noticed() {
    let (world, faults) = (world().await, Faults::new());
    // The watch breaks after the pods' creation, doesn't begin again for a while, and is then told to list anew.
    let cut = faults.on(&[Verb::Watch], "pods").cut_after(3);
    let refused = faults.on(&[Verb::Watch], "pods").times(5).refuse(500, "InternalError");
    let expired = faults.on(&[Verb::Watch], "pods").expire();
    let operator = world.start(&faults);
    world.create(Second::web(3)).await;
    let names = reaches::<Second>(&world, 3).await;
    world.delete::<Pod>(&names[1]).await;
    eventually("it is replaced", async || {
        told::<Second>(&world).await.0.len() == 3 && !told::<Second>(&world).await.0.contains(&names[1])
    })
    .await;
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
        world.create(First::web(4)).await;
        reaches::<First>(&world, 4).await;
        scale::<First>(&world, 2).await;
        reaches::<First>(&world, 2).await;
        sleep(minutes(5)).await;
        assert_quiet(&faults).await;
        assert_eq!(history.created("podset"), 4);
        operator.stop().await;
    }
}

async fn is_made_again<K: Flavour>() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(K::web(3)).await;
    let old = reaches::<K>(&world, 3).await;
    // Something holds one of the old pods.
    world.edit::<Pod>(&old[0], json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    world.delete::<K>("web").await;
    world.create(K::web(2)).await;
    let new = reaches::<K>(&world, 2).await;
    assert!(new.iter().all(|name| !old.contains(name)));
    eventually("the other old pods are gone", async || world.pods().await.len() == 3).await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_08_the_pods_of_an_earlier_set_are_neither_counted_nor_deleted() {
    is_made_again::<First>().await;
    is_made_again::<Second>().await;
}

#[tokio::test(start_paused = true)]
async fn row_09_a_set_that_is_being_deleted_creates_nothing() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = PodHistory::of(&world);
    let mut held = Second::web(2);
    held.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    world.create(held).await;
    let operator = world.start(&faults);
    let names = reaches::<Second>(&world, 2).await;
    world.delete::<Second>("web").await;
    for name in names {
        world.delete::<Pod>(&name).await;
    }
    assert_quiet(&faults).await;
    assert_eq!(history.created("web"), 2);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_10_a_steady_state_writes_nothing() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(First::web(3)).await;
    for name in reaches::<First>(&world, 3).await {
        world.run_pod(&name).await;
    }
    eventually("it is ready", async || told::<First>(&world).await.1 == "True").await;
    assert_quiet(&faults).await;
    operator.stop().await;
    let operator = world.start(&faults);
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_11_an_invalid_template_is_not_retried_and_an_edit_wakes() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let mut set = Second::web(1);
    set.spec.template = Some(serde_json::from_value(json!({"spec": 5})).unwrap());
    world.create(set).await;
    eventually("it is told", async || told::<Second>(&world).await.2 == "InvalidTemplate").await;
    assert_eq!(world.get::<Second>("web").await.status.unwrap().conditions[0].observed_generation, Some(1));
    assert_quiet(&faults).await;
    world.edit::<Second>("web", json!({"spec": {"template": null}})).await;
    reaches::<Second>(&world, 1).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_14_a_refused_pod_is_told_in_the_servers_words_and_tried_again_slowly() {
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid")] {
        let (world, faults) = (world().await, Faults::new());
        let message = "pods is forbidden: exceeded quota: small";
        let refused = faults.on(&[Verb::Create], "pods").skip(2).always().refuse_with(code, reason, message);
        let operator = world.start(&faults);
        world.create(Second::web(5)).await;
        eventually("it is told", async || told::<Second>(&world).await.2 == "PodRefused").await;
        assert_eq!(world.get::<Second>("web").await.status.unwrap().conditions[0].message, message);
        // The pods that there are are told as well.
        assert_eq!(reaches::<Second>(&world, 2).await.len(), 2);
        sleep(minutes(60)).await;
        assert!((10..=300).contains(&refused.hits()), "{}", refused.hits());
        faults.clear();
        reaches::<Second>(&world, 5).await;
        let events = world.events("web").await;
        assert_eq!(events.iter().filter(|event| event.starts_with("Warning PodRefused")).count(), 1, "{events:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn row_10_and_14_a_pod_that_is_refused_again_is_not_told_again() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let mut set = Second::web(2);
    set.spec.template = Some(serde_json::from_value(json!({"spec": {"containers": []}})).unwrap());
    world.create(set).await;
    eventually("it is told", async || told::<Second>(&world).await.2 == "PodRefused").await;
    let message = world.get::<Second>("web").await.status.unwrap().conditions[0].message.clone();
    assert!(message.starts_with("Pod \"web-*\" is invalid: spec.containers: Required value"), "{message}");
    faults.forget();
    sleep(minutes(10)).await;
    let told: Vec<_> = faults.seen().into_iter().filter(|seen| seen.request.resource == "podsets/status").collect();
    assert!(told.is_empty(), "{told:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_16_when_faults_stop_it_converges_soon_and_for_good() {
    let (world, faults) = (world().await, Faults::new());
    faults.on(Verb::WRITES, "*").skip(3).times(3).lose_answer();
    faults.on(Verb::WRITES, "*").skip(2).times(20).refuse(503, "ServiceUnavailable");
    faults.on(Verb::READS, "*").skip(5).times(20).lose_request();
    let operator = world.start(&faults);
    world.create(Second::web(5)).await;
    sleep(minutes(20)).await;
    faults.clear();
    let stopped = world.now();
    let names = reaches::<Second>(&world, 5).await;
    assert!(world.now().duration_since(stopped) < SignedDuration::from_mins(20));
    for name in names {
        world.run_pod(&name).await;
    }
    assert_quiet(&faults).await;
    assert!(active::<Second>(&world).await.iter().all(|pod| pod.name_any().starts_with("web-pod")));
    operator.stop().await;
}
