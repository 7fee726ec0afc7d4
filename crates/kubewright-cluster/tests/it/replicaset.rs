//! Replica sets over simulated pods.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PostParams},
};
use kubewright_cluster::{Cluster, Pods};
use serde_json::{Value, json};

use crate::{background, pods};

pub(crate) async fn simulated() -> Cluster {
    let clock = kubewright_apimachinery::clock::VirtualClock::starting_at(
        jiff::Timestamp::from_second(1_700_000_000).expect("a time"),
    );
    Cluster::builder().pods(Pods::Simulate).clock(clock).start().await.expect("a cluster")
}

fn sets(cluster: &Cluster) -> Api<ReplicaSet> {
    Api::namespaced(cluster.client(), "default")
}

async fn create(cluster: &Cluster, name: &str, replicas: i32) {
    let set = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "busybox"}]},
            },
        },
    });
    let set = serde_json::from_value(set).expect("a set");
    sets(cluster).create(&PostParams::default(), &set).await.expect("created");
}

/// Waits until the replica set reports that all its pods are available, and there are no others.
async fn settled(cluster: &Cluster, replicas: i32) -> Vec<Pod> {
    let steady = |sets: &[&ReplicaSet]| {
        sets.iter().all(|set| {
            let status = set.status.clone().unwrap_or_default();
            status.replicas == replicas
                && status.available_replicas.unwrap_or_default() == replicas
                && status.observed_generation == set.metadata.generation
        })
    };
    cluster.expect::<ReplicaSet>(steady).await.expect("a steady set");
    let count = usize::try_from(replicas).expect("a number");
    cluster.expect::<Pod>(|pods| pods.len() == count).await.expect("the pods")
}

#[tokio::test(start_paused = true)]
async fn scales_up_and_down_and_replaces_what_is_lost() {
    let cluster = simulated().await;
    create(&cluster, "web", 20).await;
    let made = settled(&cluster, 20).await;
    assert!(made.iter().all(|pod| pod.name_any().starts_with("web-")));
    pods(&cluster).delete(&made[0].name_any(), &DeleteParams::default()).await.expect("deleted");
    let replaced = |pods: &[&Pod]| pods.len() == 20 && pods.iter().all(|pod| pod.name_any() != made[0].name_any());
    cluster.expect::<Pod>(replaced).await.expect("another");
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    sets(&cluster).patch("web", &Default::default(), &scale).await.expect("scaled");
    settled(&cluster, 3).await;
    sets(&cluster).delete("web", &background()).await.expect("deleted");
    cluster.expect::<Pod>(|pods| pods.is_empty()).await.expect("all gone");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn never_creates_too_many_pods() {
    let cluster = simulated().await;
    let mut feed = cluster.api().feed();
    create(&cluster, "web", 50).await;
    settled(&cluster, 50).await;
    let mut made = 0;
    while let Ok(Some(change)) = feed.try_next() {
        made += usize::from(&*change.resource.kind == "Pod" && change.kind == kubewright_apiserver::ChangeKind::Added);
    }
    assert_eq!(made, 50);
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn adopts_what_it_selects_and_releases_what_it_does_not() {
    let cluster = simulated().await;
    let mut orphan = crate::pod("orphan", "sleep 1000", json!({}));
    orphan.labels_mut().insert("app".into(), "web".into());
    crate::create(&cluster, &orphan).await;
    create(&cluster, "web", 2).await;
    let all = settled(&cluster, 2).await;
    assert!(all.iter().any(|pod| pod.name_any() == "orphan" && pod.owner_references().len() == 1));
    let relabel = Patch::Merge(json!({"metadata": {"labels": {"app": Value::Null}}}));
    pods(&cluster).patch("orphan", &Default::default(), &relabel).await.expect("relabelled");
    let released = |pods: &[&Pod]| {
        pods.len() == 3 && pods.iter().any(|pod| pod.name_any() == "orphan" && pod.owner_references().is_empty())
    };
    cluster.expect::<Pod>(released).await.expect("released and replaced");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn waits_with_availability() {
    let cluster = simulated().await;
    create(&cluster, "web", 1).await;
    settled(&cluster, 1).await;
    let patch = Patch::Merge(json!({"spec": {"minReadySeconds": 3600, "replicas": 2}}));
    sets(&cluster).patch("web", &Default::default(), &patch).await.expect("patched");
    let hour = Duration::from_secs(4000);
    let available = |sets: &[&ReplicaSet]| {
        sets.iter().all(|set| set.status.as_ref().is_some_and(|status| status.available_replicas == Some(2)))
    };
    assert!(cluster.expect_within::<ReplicaSet>(Duration::from_secs(3000), available).await.is_err(), "too early");
    cluster.expect_within::<ReplicaSet>(hour, available).await.expect("in time");
    cluster.shutdown().await;
}
