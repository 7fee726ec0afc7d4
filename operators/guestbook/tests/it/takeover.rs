//! The choice of the active pod: one at a time, the oldest ready one, also while the ConfigMap changes.

use std::collections::BTreeSet;

use guestbook_operator::api::v1::Guestbook;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kubewright::simulation::{
    Span,
    env::{History, TestEnv, assert_quiet, eventually, with_a_fault_at_each_write},
};
use kubewright_apiserver::Feed;
use kubewright_cluster::{Pods, faults::Faults};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixtures::{
    POD, ail, book, env, led, reaches, reported, run_all, serves, status, three, without, world_with,
};

/// The changes of pods and Service, in order.
struct Watch {
    feed: Feed,
    ready: BTreeSet<String>,
    gone: Vec<String>,
    leads_to: String,
    /// The active pods, in order.
    served: Vec<String>,
}

impl Watch {
    fn of(env: &TestEnv) -> Self {
        let (ready, gone, served) = Default::default();
        Self { feed: env.cluster.api().feed(), ready, gone, leads_to: String::new(), served }
    }

    /// Reads the changes, and calls `check` after each.
    fn read(&mut self, check: impl Fn(&Self)) {
        while let Some(change) = self.feed.try_next().unwrap() {
            let object = change.object();
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
async fn the_oldest_ready_standby_takes_over_and_stays_active() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    // One after another, so that their ages differ.
    let mut ages = Vec::new();
    for size in 1..=4 {
        if size == 1 {
            env.create(book(1)).await;
        } else {
            env.edit::<Guestbook>("book", json!({"spec": {"size": size}})).await;
        }
        let names = reaches(&env, usize::try_from(size).unwrap()).await;
        ages.extend(names.into_iter().find(|name| !ages.contains(name)));
        sleep(1.minutes()).await;
    }
    for name in [&ages[3], &ages[0]] {
        env.run_pod(name).await;
        eventually("the first that is ready serves", async || status(&env).await.active == ages[3]).await;
    }
    assert_eq!(status(&env).await.standby, ages[..3]);
    env.run_pod(&ages[2]).await;
    ail(&env, &ages[0]).await;
    reported(&env, "Ready", "PodsNotReady").await;
    ail(&env, &ages[3]).await;
    assert_eq!(serves(&env, &ages[2..3]).await, ages[2], "the oldest isn't ready, the next not either");
    run_all(&env).await;
    reported(&env, "Ready", "PodsReady").await;
    assert_eq!(status(&env).await.active, ages[2], "that it is ready again is no reason to move");
    env.delete::<Pod>(&ages[2]).await;
    assert_eq!(serves(&env, &ages[..2]).await, ages[0]);
    let events = env.events("book").await;
    let takeovers = [&ages[3], &ages[2], &ages[0]];
    let expect: Vec<_> = takeovers
        .windows(2)
        .map(|two| format!("Normal TakenOver pod {:?} serves in place of {:?}", two[1], two[0]))
        .collect();
    assert_eq!(events.iter().filter(|event| event.starts_with("Normal")).cloned().collect::<Vec<_>>(), expect);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_of_a_takeover_leaves_one_active_pod() {
    with_a_fault_at_each_write(env, async |env| {
        let mut watch = Watch::of(env);
        let names = three(env).await;
        let first = serves(env, &names).await;
        env.delete::<Pod>(&first).await;
        let second = serves(env, &without(&names, &first)).await;
        reaches(env, 3).await;
        run_all(env).await;
        reported(env, "Ready", "PodsReady").await;
        watch.read(|_| {});
        assert_eq!(watch.served, [first, second]);
    })
    .await;
}

/// Pods become ready by themselves.
async fn rolls(size: i32) {
    let (env, faults) = (world_with(Pods::Simulate).await, Faults::new());
    let mut watch = Watch::of(&env);
    let operator = env.start(&faults);
    env.create(book(size)).await;
    let size = usize::try_from(size).unwrap();
    let names = reaches(&env, size).await;
    reported(&env, "Ready", "PodsReady").await;
    let active = serves(&env, &names).await;
    watch.read(|_| {});
    env.edit::<ConfigMap>("words", json!({"data": {"title": "Theirs"}})).await;
    eventually("all are replaced", async || !reaches(&env, size).await.iter().any(|name| names.contains(name))).await;
    reported(&env, "Updated", "UpToDate").await;
    reported(&env, "Ready", "PodsReady").await;
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
async fn a_changed_config_map_replaces_standby_pods_first_and_the_active_one_last() {
    rolls(3).await;
    rolls(10).await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_config_map_replaces_one_or_two_pods_without_a_gap() {
    rolls(2).await;
    rolls(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_of_a_config_map_change_leaves_no_gap() {
    with_a_fault_at_each_write(
        || world_with(Pods::Simulate),
        async |env| {
            let mut watch = Watch::of(env);
            env.create(book(2)).await;
            reported(env, "Ready", "PodsReady").await;
            watch.read(|_| {});
            env.edit::<ConfigMap>("words", json!({"data": {"title": "Theirs"}})).await;
            eventually("both are replaced", async || {
                watch.read(|now| assert!(now.ready.contains(&now.leads_to), "{:?}", now.ready));
                watch.gone.len() == 2
            })
            .await;
            reported(env, "Ready", "PodsReady").await;
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn unready_pods_stop_a_rollout_and_the_next_change_resumes_it() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let old = three(&env).await;
    let active = serves(&env, &old).await;
    env.edit::<ConfigMap>("words", json!({"data": {"title": "bad"}})).await;
    eventually("one is replaced", async || reaches(&env, 3).await != old).await;
    assert_quiet(&faults).await;
    let stuck = reaches(&env, 3).await;
    assert_eq!(stuck.iter().filter(|name| old.contains(name)).count(), 2, "the others stay");
    assert_eq!(status(&env).await.active, active);
    env.edit::<ConfigMap>("words", json!({"data": {"title": "good"}})).await;
    eventually("all are replaced", async || {
        run_all(&env).await;
        let now = reaches(&env, 3).await;
        now.iter().all(|name| !old.contains(name) && !stuck.contains(name))
    })
    .await;
    run_all(&env).await;
    reported(&env, "Updated", "UpToDate").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_ready_pod_none_is_active_and_the_first_to_recover_serves() {
    let (env, faults) = (env().await, Faults::new());
    let operator = env.start(&faults);
    let names = three(&env).await;
    for name in &names {
        ail(&env, name).await;
    }
    reported(&env, "Serving", "NoReadyPod").await;
    let now = status(&env).await;
    assert_eq!((now.active.as_str(), now.ready_replicas, now.standby.len()), ("", 0, 3));
    assert_quiet(&faults).await;
    env.run_pod(&names[1]).await;
    assert_eq!(serves(&env, &names).await, names[1]);
    let events = env.events("book").await;
    assert_eq!(events.iter().filter(|event| event.starts_with("Warning NoReadyPod")).count(), 1, "{events:?}");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_end_as_fast_as_they_appear_are_replaced_with_back_off() {
    let (env, faults) = (env().await, Faults::new());
    let mut history = History::of::<Pod>(&env);
    let operator = env.start(&faults);
    env.create(book(3)).await;
    let end = env.now() + SignedDuration::from_hours(1);
    while env.now() < end {
        for pod in env.pods().await {
            env.end_pod(&kube::ResourceExt::name_any(&pod), 1).await;
        }
        sleep(std::time::Duration::from_millis(500)).await;
    }
    let created = history.created();
    assert!((20..150).contains(&created), "{created}");
    assert!(faults.writes() < 6 * created, "{} writes for {created} pods", faults.writes());
    assert!(env.pods().await.len() <= 3, "those that ended are not kept");
    assert_eq!(led(&env).await, None);
    reported(&env, "Ready", "BackOff").await;
    // After that, all pods exist soon.
    reaches(&env, 3).await;
    run_all(&env).await;
    reported(&env, "Ready", "PodsReady").await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_endpoint_serves_whatever_happens() {
    let (env, faults) = (world_with(Pods::Simulate).await, Faults::new());
    let mut feed = env.cluster.api().feed();
    let operator = env.start(&faults);
    env.create(book(4)).await;
    reported(&env, "Ready", "PodsReady").await;
    for _ in 0..3 {
        let active = status(&env).await.active;
        env.delete::<Pod>(&active).await;
        eventually("another serves", async || ![active.as_str(), ""].contains(&status(&env).await.active.as_str()))
            .await;
        env.delete::<Service>("book").await;
        reported(&env, "Ready", "PodsReady").await;
    }
    let before = reaches(&env, 4).await;
    env.edit::<Guestbook>("book", json!({"spec": {"alias": "Phone"}})).await;
    eventually("all are replaced", async || !reaches(&env, 4).await.iter().any(|name| before.contains(name))).await;
    reported(&env, "Updated", "UpToDate").await;
    let mut most = 0;
    while let Some(change) = feed.try_next().unwrap() {
        if change.object()["kind"] == "EndpointSlice" {
            let endpoints = change.object()["endpoints"].as_array().cloned().unwrap_or_default();
            let ready = endpoints.iter().filter(|endpoint| endpoint["conditions"]["ready"] == true);
            let of_book = change.object()["metadata"]["labels"]["kubernetes.io/service-name"] == "book";
            most = most.max(if of_book { ready.count() } else { 0 });
        }
    }
    assert_eq!(most, 1);
    operator.stop().await;
}
