//! Who serves: one at a time, the oldest that is ready, and where every change of the texts leads.

use std::collections::BTreeSet;

use guestbook_operator::api::v1::Guestbook;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kubewright_apiserver::Feed;
use kubewright_cluster::{Pods, faults::Faults};
use operator_kit::{World, assert_quiet, eventually, go_wrong_everywhere, minutes};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{POD, ail, book, led, reaches, run_all, serves, status, three, told, without, world, world_with};

/// What happened to the pods and the Service, in its order.
struct Watch {
    feed: Feed,
    ready: BTreeSet<String>,
    gone: Vec<String>,
    leads_to: String,
    /// Who served, each time another did.
    served: Vec<String>,
}

impl Watch {
    fn of(world: &World) -> Self {
        let (ready, gone, served) = Default::default();
        Self { feed: world.cluster.api().feed(), ready, gone, leads_to: String::new(), served }
    }

    /// Reads what happened since, and checks each change with what was before.
    fn read(&mut self, check: impl Fn(&Self)) {
        while let Some(change) = self.feed.try_next().unwrap() {
            let object = &change.object;
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match object["kind"].as_str() {
                Some("Pod") => {
                    let is_ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
                    let ready = object["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is_ready));
                    let leaves = !object["metadata"]["deletionTimestamp"].is_null();
                    if leaves && !self.gone.contains(&name) {
                        self.gone.push(name.clone());
                    }
                    if ready && !leaves {
                        self.ready.insert(name)
                    } else {
                        self.ready.remove(&name)
                    };
                }
                Some("Service") if name == "book" => {
                    self.leads_to = object["spec"]["selector"][POD].as_str().unwrap_or_default().into();
                    if !self.leads_to.is_empty() {
                        self.served.push(self.leads_to.clone());
                    }
                    self.served.dedup();
                }
                _ => continue,
            }
            check(self);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_ready_standby_takes_over_and_nobody_takes_it_back() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    // One after another, so that their ages differ.
    let mut ages = Vec::new();
    for size in 1..=4 {
        if size == 1 {
            world.create(book(1)).await;
        } else {
            world.edit::<Guestbook>("book", json!({"spec": {"size": size}})).await;
        }
        let names = reaches(&world, usize::try_from(size).unwrap()).await;
        ages.extend(names.into_iter().find(|name| !ages.contains(name)));
        sleep(minutes(1)).await;
    }
    for name in [&ages[3], &ages[0]] {
        world.run_pod(name).await;
        eventually("the first that is ready serves", async || status(&world).await.active == ages[3]).await;
    }
    assert_eq!(status(&world).await.standby, ages[..3]);
    world.run_pod(&ages[2]).await;
    ail(&world, &ages[0]).await;
    told(&world, "Ready", "PodsNotReady").await;
    ail(&world, &ages[3]).await;
    assert_eq!(serves(&world, &ages[2..3]).await, ages[2], "the oldest isn't ready, the next not either");
    run_all(&world).await;
    told(&world, "Ready", "PodsReady").await;
    assert_eq!(status(&world).await.active, ages[2], "that it is ready again is no reason to move");
    world.delete::<Pod>(&ages[2]).await;
    assert_eq!(serves(&world, &ages[..2]).await, ages[0]);
    let events = world.events("book").await;
    let takeovers = [&ages[3], &ages[2], &ages[0]];
    let expect: Vec<_> = takeovers
        .windows(2)
        .map(|two| format!("Normal TakenOver pod {:?} serves in place of {:?}", two[1], two[0]))
        .collect();
    assert_eq!(events.iter().filter(|event| event.starts_with("Normal")).cloned().collect::<Vec<_>>(), expect);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_of_a_takeover_leaves_one_active() {
    go_wrong_everywhere(world, async |world| {
        let mut watch = Watch::of(world);
        let names = three(world).await;
        let first = serves(world, &names).await;
        world.delete::<Pod>(&first).await;
        let second = serves(world, &without(&names, &first)).await;
        reaches(world, 3).await;
        run_all(world).await;
        told(world, "Ready", "PodsReady").await;
        watch.read(|_| {});
        assert_eq!(watch.served, [first, second]);
    })
    .await;
}

/// The pods of this world become ready, and stay so, by themselves.
async fn rolls(size: i32) {
    let (world, faults) = (world_with(Pods::Simulate).await, Faults::new());
    let mut watch = Watch::of(&world);
    let operator = world.start(&faults);
    world.create(book(size)).await;
    let size = usize::try_from(size).unwrap();
    let names = reaches(&world, size).await;
    told(&world, "Ready", "PodsReady").await;
    let active = serves(&world, &names).await;
    watch.read(|_| {});
    world.edit::<ConfigMap>("words", json!({"data": {"title": "Theirs"}})).await;
    eventually("all are replaced", async || !reaches(&world, size).await.iter().any(|name| names.contains(name))).await;
    told(&world, "Updated", "UpToDate").await;
    told(&world, "Ready", "PodsReady").await;
    watch.read(|now| {
        assert!(now.ready.contains(&now.leads_to), "the Service leads to a pod that is ready");
        assert!(now.ready.len() >= size.saturating_sub(1).max(1), "one at a time: {:?}", now.ready);
    });
    assert_eq!(watch.gone.len(), size);
    assert_eq!(watch.gone.last(), Some(&active), "the active one is the last");
    assert_eq!(watch.served.len(), 2, "and hands over once: {:?}", watch.served);
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_47_changed_texts_replace_the_standbys_first_and_the_active_one_last() {
    rolls(3).await;
    rolls(10).await;
}

#[tokio::test(start_paused = true)]
async fn row_47_changed_texts_replace_two_and_even_one_without_a_gap() {
    rolls(2).await;
    rolls(1).await;
}

#[tokio::test(start_paused = true)]
async fn row_01_mishap_at_any_write_of_a_change_of_texts_leaves_no_gap() {
    go_wrong_everywhere(
        || world_with(Pods::Simulate),
        async |world| {
            let mut watch = Watch::of(world);
            world.create(book(2)).await;
            told(world, "Ready", "PodsReady").await;
            watch.read(|_| {});
            world.edit::<ConfigMap>("words", json!({"data": {"title": "Theirs"}})).await;
            eventually("both are replaced", async || {
                watch.read(|now| assert!(now.ready.contains(&now.leads_to), "{:?}", now.ready));
                watch.gone.len() == 2
            })
            .await;
            told(world, "Ready", "PodsReady").await;
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_never_become_ready_stop_a_change_and_the_next_change_mends_it() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let old = three(&world).await;
    let active = serves(&world, &old).await;
    world.edit::<ConfigMap>("words", json!({"data": {"title": "bad"}})).await;
    eventually("one is replaced", async || reaches(&world, 3).await != old).await;
    assert_quiet(&faults).await;
    let stuck = reaches(&world, 3).await;
    assert_eq!(stuck.iter().filter(|name| old.contains(name)).count(), 2, "the others stay");
    assert_eq!(status(&world).await.active, active);
    world.edit::<ConfigMap>("words", json!({"data": {"title": "good"}})).await;
    eventually("all are replaced", async || {
        run_all(&world).await;
        let now = reaches(&world, 3).await;
        now.iter().all(|name| !old.contains(name) && !stuck.contains(name))
    })
    .await;
    run_all(&world).await;
    told(&world, "Updated", "UpToDate").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_48_with_every_pod_failing_none_is_active_and_the_first_that_recovers_serves() {
    let (world, faults) = (world().await, Faults::new());
    let operator = world.start(&faults);
    let names = three(&world).await;
    for name in &names {
        ail(&world, name).await;
    }
    told(&world, "Serving", "NoReadyPod").await;
    let now = status(&world).await;
    assert_eq!((now.active.as_str(), now.ready_replicas, now.standby.len()), ("", 0, 3));
    assert_quiet(&faults).await;
    world.run_pod(&names[1]).await;
    assert_eq!(serves(&world, &names).await, names[1]);
    let events = world.events("book").await;
    assert_eq!(events.iter().filter(|event| event.starts_with("Warning NoReadyPod")).count(), 1, "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn row_48_pods_that_end_as_fast_as_they_appear_are_replaced_ever_more_slowly() {
    let (world, faults) = (world().await, Faults::new());
    let mut history = operator_kit::History::of::<Pod>(&world);
    let operator = world.start(&faults);
    world.create(book(3)).await;
    let end = world.now() + SignedDuration::from_hours(1);
    while world.now() < end {
        for pod in world.pods().await {
            world.end_pod(&kube::ResourceExt::name_any(&pod), 1).await;
        }
        sleep(std::time::Duration::from_millis(500)).await;
    }
    let created = history.created();
    assert!((20..150).contains(&created), "{created}");
    assert!(faults.writes() < 6 * created, "{} writes for {created} pods", faults.writes());
    assert!(world.pods().await.len() <= 3, "those that ended are not kept");
    assert_eq!(led(&world).await, None);
    told(&world, "Ready", "BackOff").await;
    // When that ends, all are there soon.
    reaches(&world, 3).await;
    run_all(&world).await;
    told(&world, "Ready", "PodsReady").await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_endpoint_serves_whatever_happens() {
    let (world, faults) = (world_with(Pods::Simulate).await, Faults::new());
    let mut feed = world.cluster.api().feed();
    let operator = world.start(&faults);
    world.create(book(4)).await;
    told(&world, "Ready", "PodsReady").await;
    for _ in 0..3 {
        let active = status(&world).await.active;
        world.delete::<Pod>(&active).await;
        eventually("another serves", async || ![active.as_str(), ""].contains(&status(&world).await.active.as_str()))
            .await;
        world.delete::<Service>("book").await;
        told(&world, "Ready", "PodsReady").await;
    }
    let before = reaches(&world, 4).await;
    world.edit::<Guestbook>("book", json!({"spec": {"alias": "Phone"}})).await;
    eventually("all are replaced", async || !reaches(&world, 4).await.iter().any(|name| before.contains(name))).await;
    told(&world, "Updated", "UpToDate").await;
    let mut most = 0;
    while let Some(change) = feed.try_next().unwrap() {
        if change.object["kind"] == "EndpointSlice" {
            let endpoints = change.object["endpoints"].as_array().cloned().unwrap_or_default();
            let ready = endpoints.iter().filter(|endpoint| endpoint["conditions"]["ready"] == true);
            let of_book = change.object["metadata"]["labels"]["kubernetes.io/service-name"] == "book";
            most = most.max(if of_book { ready.count() } else { 0 });
        }
    }
    assert_eq!(most, 1);
    operator.stop().await;
}
