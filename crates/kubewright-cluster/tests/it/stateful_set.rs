//! Stateful sets over simulated pods.

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::{Event, PersistentVolumeClaim, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PostParams},
};
use kubewright_apiserver::ChangeKind;
use kubewright_cluster::Cluster;
use serde_json::{Value, json};

use crate::{background, pods, replicaset::simulated};

fn sets(cluster: &Cluster) -> Api<StatefulSet> {
    Api::namespaced(cluster.client(), "default")
}

async fn create(cluster: &Cluster, spec: Value) {
    let mut set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
            },
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        set["spec"][field] = value.clone();
    }
    let set = serde_json::from_value(set).expect("a set");
    sets(cluster).create(&PostParams::default(), &set).await.expect("created");
}

async fn change(cluster: &Cluster, spec: Value) {
    let patch = Patch::Strategic(json!({"spec": spec}));
    sets(cluster).patch("db", &Default::default(), &patch).await.expect("patched");
}

fn image(image: &str) -> Value {
    json!({"template": {"spec": {"containers": [{"name": "main", "image": image}]}}})
}

/// The condition of `kubectl rollout status`, without a partition.
fn is_rolled_out(set: &StatefulSet) -> bool {
    let status = set.status.clone().unwrap_or_default();
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas);
    status.observed_generation == set.metadata.generation
        && Some(status.replicas) == wanted
        && status.ready_replicas.or(Some(0)) == wanted
        && status.available_replicas.or(Some(0)) == wanted
        && status.update_revision == status.current_revision
}

async fn rolled_out(cluster: &Cluster) -> StatefulSet {
    cluster.expect::<StatefulSet>(|sets| sets.iter().all(|set| is_rolled_out(set))).await.expect("rolled out").remove(0)
}

/// The names of the pods with their images.
async fn images(cluster: &Cluster) -> Vec<String> {
    let pods = pods(cluster).list(&Default::default()).await.expect("listed").items;
    let line = |pod: &Pod| {
        let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone()).unwrap_or_default();
        format!("{} {image}", pod.name_any())
    };
    pods.iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn pods_are_created_replaced_and_deleted_in_order() {
    let cluster = simulated().await;
    let mut feed = cluster.api().feed();
    create(&cluster, json!({})).await;
    rolled_out(&cluster).await;
    change(&cluster, image("busybox:2")).await;
    rolled_out(&cluster).await;
    assert_eq!(images(&cluster).await, ["db-0 busybox:2", "db-1 busybox:2", "db-2 busybox:2"]);
    change(&cluster, json!({"replicas": 1})).await;
    rolled_out(&cluster).await;
    let mut history = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    while let Ok(Some(change)) = feed.try_next() {
        if &*change.resource.kind == "Pod" {
            let name = change.object()["metadata"]["name"].as_str().expect("a name").to_owned();
            match change.kind {
                ChangeKind::Deleted => {
                    known.remove(&name);
                    history.push(format!("-{name}"));
                }
                _ if known.insert(name.clone()) => history.push(format!("+{name}")),
                _ => {}
            }
        }
    }
    let expect = ["+db-0", "+db-1", "+db-2", "-db-2", "+db-2", "-db-1", "+db-1", "-db-0", "+db-0", "-db-2", "-db-1"];
    assert_eq!(history, expect);
    let created = |events: &[&Event]| {
        let mut messages = events.iter().filter_map(|event| event.message.as_deref());
        messages.any(|message| message == "Create Pod db-0 in StatefulSet db successful")
    };
    cluster.expect::<Event>(created).await.expect("events");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_holds_an_update_back_and_history_has_a_limit() {
    let cluster = simulated().await;
    let partition = |number: i64| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": number}});
    create(&cluster, json!({"updateStrategy": partition(2), "revisionHistoryLimit": 1})).await;
    let first = rolled_out(&cluster).await.status.and_then(|status| status.current_revision);
    change(&cluster, image("busybox:2")).await;
    let partly = |sets: &[&StatefulSet]| {
        let status = sets[0].status.clone().unwrap_or_default();
        status.updated_replicas == Some(1) && status.ready_replicas == Some(3) && status.current_replicas == Some(2)
    };
    let held = cluster.expect::<StatefulSet>(partly).await.expect("one is updated").remove(0);
    assert_eq!(held.status.and_then(|status| status.current_revision), first);
    assert_eq!(images(&cluster).await, ["db-0 busybox:1", "db-1 busybox:1", "db-2 busybox:2"]);
    pods(&cluster).delete("db-0", &background()).await.expect("deleted");
    let partly_again = |sets: &[&StatefulSet]| partly(sets) && is_ready_again(sets);
    cluster.expect::<StatefulSet>(partly_again).await.expect("replaced");
    assert_eq!(images(&cluster).await[0], "db-0 busybox:1", "the current revision");
    change(&cluster, json!({"updateStrategy": partition(0)})).await;
    rolled_out(&cluster).await;
    for tag in 3..5 {
        change(&cluster, image(&format!("busybox:{tag}"))).await;
        rolled_out(&cluster).await;
    }
    let revisions = cluster.expect::<ControllerRevision>(|all| all.len() == 2).await.expect("a limited history");
    let mut numbers: Vec<_> = revisions.iter().map(|one| one.revision).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [3, 4]);
    cluster.shutdown().await;
}

fn is_ready_again(sets: &[&StatefulSet]) -> bool {
    sets[0].status.as_ref().is_some_and(|status| status.replicas == 3 && status.available_replicas == Some(3))
}

#[tokio::test(start_paused = true)]
async fn each_pod_has_its_own_claims_which_go_with_the_policy() {
    let cluster = simulated().await;
    let storage = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    create(
        &cluster,
        json!({
            "podManagementPolicy": "Parallel", "ordinals": {"start": 5},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": storage}],
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Delete"},
        }),
    )
    .await;
    rolled_out(&cluster).await;
    let names = |claims: &[&PersistentVolumeClaim]| claims.iter().map(|claim| claim.name_any()).collect::<Vec<_>>();
    let all = ["data-db-5", "data-db-6", "data-db-7"];
    cluster.expect::<PersistentVolumeClaim>(|claims| names(claims) == all).await.expect("claims");
    change(&cluster, json!({"replicas": 1})).await;
    cluster.expect::<PersistentVolumeClaim>(|claims| names(claims) == all[..1]).await.expect("scaled");
    change(&cluster, json!({"replicas": 2})).await;
    rolled_out(&cluster).await;
    cluster.expect::<PersistentVolumeClaim>(|claims| names(claims) == all[..2]).await.expect("claimed again");
    sets(&cluster).delete("db", &background()).await.expect("deleted");
    cluster.expect::<PersistentVolumeClaim>(|claims| claims.is_empty()).await.expect("gone");
    cluster.expect::<Pod>(|pods| pods.is_empty()).await.expect("gone");
    cluster.expect::<ControllerRevision>(|all| all.is_empty()).await.expect("gone");
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_adopted_and_released() {
    let cluster = simulated().await;
    create(&cluster, json!({})).await;
    rolled_out(&cluster).await;
    let before = pods(&cluster).get("db-1").await.expect("read").metadata.uid;
    sets(&cluster)
        .delete(
            "db",
            &kube::api::DeleteParams {
                propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
                ..Default::default()
            },
        )
        .await
        .expect("deleted");
    cluster.expect::<StatefulSet>(|sets| sets.is_empty()).await.expect("deleted");
    create(&cluster, json!({})).await;
    rolled_out(&cluster).await;
    let adopted = pods(&cluster).get("db-1").await.expect("read");
    assert_eq!(adopted.metadata.uid, before, "not replaced");
    assert_eq!(adopted.owner_references().len(), 1);
    let strip = Patch::Merge(json!({"metadata": {"labels": {"app": null}}}));
    pods(&cluster).patch("db-1", &Default::default(), &strip).await.expect("patched");
    let released = |pods: &[&Pod]| pods.iter().any(|pod| pod.name_any() == "db-1" && pod.owner_references().is_empty());
    cluster.expect::<Pod>(released).await.expect("released");
    cluster.shutdown().await;
}
