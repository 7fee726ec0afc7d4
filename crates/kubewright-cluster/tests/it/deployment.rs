//! Deployments over simulated pods.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PostParams},
};
use kubewright_cluster::{Cluster, Pods};
use serde_json::{Value, json};

use crate::{background, replicaset::simulated};

fn deployments(cluster: &Cluster) -> Api<Deployment> {
    Api::namespaced(cluster.client(), "default")
}

async fn create(cluster: &Cluster, spec: Value) {
    let mut deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 4, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
            },
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        deployment["spec"][field] = value.clone();
    }
    let deployment = serde_json::from_value(deployment).expect("a deployment");
    deployments(cluster).create(&PostParams::default(), &deployment).await.expect("created");
}

async fn change(cluster: &Cluster, spec: Value) {
    let patch = Patch::Strategic(json!({"spec": spec}));
    deployments(cluster).patch("web", &Default::default(), &patch).await.expect("patched");
}

fn image(image: &str) -> Value {
    json!({"template": {"spec": {"containers": [{"name": "main", "image": image}]}}})
}

fn reason(deployment: &Deployment, kind: &str) -> String {
    let conditions = deployment.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|one| one.type_ == kind).find_map(|one| one.reason.clone()).unwrap_or_default()
}

/// The condition of `kubectl rollout status`.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && reason(deployment, "Progressing") == "NewReplicaSetAvailable"
}

async fn rolled_out(cluster: &Cluster) -> Deployment {
    let done = |all: &[&Deployment]| all.iter().all(|deployment| is_rolled_out(deployment));
    cluster.expect::<Deployment>(done).await.expect("rolled out").remove(0)
}

fn has_image(pod: &Pod, image: &str) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() == Some(image))
}

#[tokio::test(start_paused = true)]
async fn a_change_is_rolled_out_within_its_bounds() {
    let cluster = simulated().await;
    create(&cluster, json!({})).await;
    let first = rolled_out(&cluster).await;
    assert_eq!(first.annotations()["deployment.kubernetes.io/revision"], "1");
    assert_eq!(reason(&first, "Available"), "MinimumReplicasAvailable");
    let mut feed = cluster.api().feed();
    while !matches!(feed.try_next(), Ok(None)) {}
    change(&cluster, image("busybox:2")).await;
    let second = rolled_out(&cluster).await;
    assert_eq!(second.annotations()["deployment.kubernetes.io/revision"], "2");
    let pods = cluster.expect::<Pod>(|pods| pods.len() == 4).await.expect("the pods");
    assert!(pods.iter().all(|pod| has_image(pod, "busybox:2")));
    while let Ok(Some(change)) = feed.try_next() {
        let status = &change.object()["status"];
        if &*change.resource.kind == "Deployment" {
            assert!(
                status["replicas"].as_i64() <= Some(5) && status["availableReplicas"].as_i64() >= Some(3),
                "{status}"
            );
        }
    }
    deployments(&cluster).delete("web", &background()).await.expect("deleted");
    cluster.expect::<ReplicaSet>(|sets| sets.is_empty()).await.expect("gone");
    cluster.expect::<Pod>(|pods| pods.is_empty()).await.expect("gone");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_reuses_its_replica_set_and_history_has_a_limit() {
    let cluster = simulated().await;
    create(&cluster, json!({"revisionHistoryLimit": 2, "replicas": 1})).await;
    rolled_out(&cluster).await;
    for tag in 2..6 {
        change(&cluster, image(&format!("busybox:{tag}"))).await;
        rolled_out(&cluster).await;
    }
    change(&cluster, image("busybox:4")).await;
    let back = rolled_out(&cluster).await;
    assert_eq!(back.annotations()["deployment.kubernetes.io/revision"], "6");
    let sets = cluster.expect::<ReplicaSet>(|sets| sets.len() == 3).await.expect("a limited history");
    let mut revisions: Vec<_> =
        sets.iter().map(|set| set.annotations()["deployment.kubernetes.io/revision"].as_str()).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, ["3", "5", "6"]);
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn recreation_never_runs_two_versions() {
    let cluster = simulated().await;
    create(&cluster, json!({"strategy": {"type": "Recreate"}})).await;
    rolled_out(&cluster).await;
    let mut feed = cluster.api().feed();
    change(&cluster, image("busybox:2")).await;
    rolled_out(&cluster).await;
    let mut alive = std::collections::BTreeMap::new();
    while let Ok(Some(change)) = feed.try_next() {
        if &*change.resource.kind == "Pod" {
            let name = change.object()["metadata"]["name"].to_string();
            let image = change.object()["spec"]["containers"][0]["image"].to_string();
            match change.kind {
                kubewright_apiserver::ChangeKind::Deleted => alive.remove(&name),
                _ => alive.insert(name, image),
            };
            let images: std::collections::BTreeSet<_> = alive.values().collect();
            assert!(images.len() <= 1, "{alive:?}");
        }
    }
    assert_eq!(alive.len(), 4);
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_stuck_rollout_exceeds_its_deadline() {
    let clock = kubewright_apimachinery::clock::VirtualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let cluster = Cluster::builder().pods(Pods::None).clock(clock).start().await.expect("a cluster");
    create(&cluster, json!({"progressDeadlineSeconds": 60})).await;
    let late = |all: &[&Deployment]| all.iter().any(|one| reason(one, "Progressing") == "ProgressDeadlineExceeded");
    assert!(cluster.expect_within::<Deployment>(Duration::from_secs(50), late).await.is_err(), "too early");
    let found = cluster.expect_within::<Deployment>(Duration::from_secs(15), late).await.expect("in time");
    assert_eq!(reason(&found[0], "Available"), "MinimumReplicasUnavailable");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_deployment_is_not_rolled_out() {
    let cluster = simulated().await;
    create(&cluster, json!({})).await;
    rolled_out(&cluster).await;
    change(&cluster, json!({"paused": true})).await;
    change(&cluster, image("busybox:2")).await;
    let paused = |all: &[&Deployment]| {
        all.iter().all(|one| {
            let seen = one.status.as_ref().and_then(|status| status.observed_generation);
            reason(one, "Progressing") == "DeploymentPaused" && seen == one.metadata.generation
        })
    };
    cluster.expect::<Deployment>(paused).await.expect("paused");
    tokio::time::sleep(Duration::from_secs(60)).await;
    cluster.expect::<ReplicaSet>(|sets| sets.len() == 1).await.expect("nothing new");
    change(&cluster, json!({"paused": false})).await;
    rolled_out(&cluster).await;
    cluster.expect::<ReplicaSet>(|sets| sets.len() == 2).await.expect("rolled out");
    cluster.shutdown().await;
}
