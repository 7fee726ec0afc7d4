//! Garbage collection. The rules are tested on the graph; these tests show that its decisions are executed.

use k8s_openapi::{
    api::core::v1::{ConfigMap, Event, Namespace},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, PropagationPolicy},
};
use kubewright_cluster::Cluster;
use serde_json::json;

use crate::{background, bare, config_maps};

async fn put(cluster: &Cluster, namespace: &str, name: &str, owners: Vec<OwnerReference>) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.into()),
        owner_references: Some(owners).filter(|owners| !owners.is_empty()),
        ..ObjectMeta::default()
    };
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), namespace);
    let map = ConfigMap { metadata, ..ConfigMap::default() };
    api.create(&PostParams::default(), &map).await.expect("created")
}

/// A reference that blocks the owner's foreground deletion.
fn owner(map: &ConfigMap) -> OwnerReference {
    OwnerReference { block_owner_deletion: Some(true), ..map.owner_ref(&()).expect("a reference") }
}

fn named(uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: "ghost".into(),
        uid: uid.into(),
        ..OwnerReference::default()
    }
}

/// The remaining config maps of the test, with their owners.
fn names(maps: &[&ConfigMap]) -> Vec<String> {
    let own = maps.iter().filter(|map| map.name_any() != "kube-root-ca.crt");
    own.map(|map| {
        let owners: Vec<_> = map.owner_references().iter().map(|owner| owner.name.as_str()).collect();
        if owners.is_empty() { map.name_any() } else { format!("{}: {}", map.name_any(), owners.join(" ")) }
    })
    .collect()
}

async fn left(cluster: &Cluster, expect: &[&str]) {
    cluster.expect::<ConfigMap>(|maps| names(maps) == expect).await.expect("what is left");
}

fn policy(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}

#[tokio::test]
async fn background_deletes_dependents_after_the_owner() {
    let cluster = bare().await;
    let a = put(&cluster, "default", "a", vec![]).await;
    let b = put(&cluster, "default", "b", vec![owner(&a)]).await;
    put(&cluster, "default", "c", vec![owner(&b)]).await;
    put(&cluster, "default", "d", vec![]).await;
    config_maps(&cluster).delete("a", &background()).await.expect("deleted");
    left(&cluster, &["d"]).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn foreground_keeps_the_owner_until_its_dependents_are_gone() {
    let cluster = bare().await;
    let maps = config_maps(&cluster);
    let a = put(&cluster, "default", "a", vec![]).await;
    put(&cluster, "default", "b", vec![owner(&a)]).await;
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    maps.patch("b", &PatchParams::default(), &Patch::Merge(&hold)).await.expect("held");
    maps.delete("a", &policy(PropagationPolicy::Foreground)).await.expect("accepted");
    cluster
        .expect::<ConfigMap>(|all| {
            all.iter().any(|map| map.name_any() == "b" && map.metadata.deletion_timestamp.is_some())
        })
        .await
        .expect("the dependent is being deleted");
    let a = maps.get("a").await.expect("the owner waits");
    assert_eq!(a.finalizers(), ["foregroundDeletion"]);
    let release = json!({"metadata": {"finalizers": null}});
    maps.patch("b", &PatchParams::default(), &Patch::Merge(&release)).await.expect("released");
    left(&cluster, &[]).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn orphans_lose_the_reference_and_stay() {
    let cluster = bare().await;
    let a = put(&cluster, "default", "a", vec![]).await;
    let b = put(&cluster, "default", "b", vec![]).await;
    put(&cluster, "default", "c", vec![owner(&a), owner(&b)]).await;
    config_maps(&cluster).delete("a", &policy(PropagationPolicy::Orphan)).await.expect("accepted");
    left(&cluster, &["b", "c: b"]).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_last_of_several_owners_takes_the_dependent_along() {
    let cluster = bare().await;
    let a = put(&cluster, "default", "a", vec![]).await;
    let b = put(&cluster, "default", "b", vec![]).await;
    put(&cluster, "default", "c", vec![owner(&a), owner(&b)]).await;
    config_maps(&cluster).delete("a", &background()).await.expect("deleted");
    left(&cluster, &["b", "c: b"]).await;
    config_maps(&cluster).delete("b", &background()).await.expect("deleted");
    left(&cluster, &[]).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn cycles_are_collected() {
    for how in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        let cluster = bare().await;
        let a = put(&cluster, "default", "a", vec![]).await;
        let b = put(&cluster, "default", "b", vec![owner(&a)]).await;
        let c = put(&cluster, "default", "c", vec![owner(&b)]).await;
        let patch = json!({"metadata": {"ownerReferences": [owner(&c)]}});
        config_maps(&cluster).patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("closed");
        config_maps(&cluster).delete("b", &policy(how)).await.expect("accepted");
        left(&cluster, &[]).await;
        cluster.shutdown().await;
    }
}

#[tokio::test]
async fn an_absent_owner_is_dropped_or_deletes() {
    let cluster = bare().await;
    let a = put(&cluster, "default", "a", vec![]).await;
    put(&cluster, "default", "b", vec![named("11111111-1111-4111-8111-111111111111")]).await;
    put(&cluster, "default", "c", vec![named("11111111-1111-4111-8111-111111111111"), owner(&a)]).await;
    // The same name, but the UID of another object.
    let stale = OwnerReference { uid: "22222222-2222-4222-8222-222222222222".into(), ..owner(&a) };
    put(&cluster, "default", "d", vec![stale]).await;
    left(&cluster, &["a", "c: a"]).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_owner_in_another_namespace_counts_as_absent_and_is_reported() {
    let cluster = bare().await;
    cluster.apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: other}}").await.expect("applied");
    let a = put(&cluster, "default", "a", vec![]).await;
    put(&cluster, "other", "b", vec![owner(&a)]).await;
    left(&cluster, &["a"]).await;
    let told = |events: &[&Event]| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("OwnerRefInvalidNamespace")
                && event.involved_object.name.as_deref() == Some("b")
                && event.type_.as_deref() == Some("Warning")
        })
    };
    cluster.expect::<Event>(told).await.expect("an event");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_cluster_scoped_owner_serves_all_namespaces() {
    let cluster = bare().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    cluster.apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: boss}}").await.expect("applied");
    let boss = namespaces.get("boss").await.expect("the namespace");
    put(&cluster, "default", "a", vec![boss.owner_ref(&()).expect("a reference")]).await;
    left(&cluster, &["a: boss"]).await;
    namespaces.delete("boss", &background()).await.expect("accepted");
    left(&cluster, &[]).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_owner_of_a_kind_that_is_not_installed_yet_counts_as_present() {
    let cluster = bare().await;
    let reference = OwnerReference {
        kind: "Widget".into(),
        api_version: "example.com/v1".into(),
        ..named("33333333-3333-4333-8333-333333333333")
    };
    put(&cluster, "default", "a", vec![reference]).await;
    // When this one has been collected, the collector has processed all earlier changes.
    put(&cluster, "default", "b", vec![named("44444444-4444-4444-8444-444444444444")]).await;
    left(&cluster, &["a: ghost"]).await;
    cluster.apply_yaml(crate::crds::WIDGETS).await.expect("applied");
    left(&cluster, &[]).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_object_that_keeps_changing_is_collected() {
    let cluster = bare().await;
    let a = put(&cluster, "default", "a", vec![]).await;
    put(&cluster, "default", "b", vec![owner(&a)]).await;
    let maps = config_maps(&cluster);
    let busy = async {
        let mut count = 0;
        loop {
            count += 1;
            let patch = json!({"data": {"count": count.to_string()}});
            if maps.patch("b", &PatchParams::default(), &Patch::Merge(&patch)).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let delete = async { maps.delete("a", &background()).await.expect("deleted") };
    let (_, _) = tokio::join!(tokio::time::timeout(crate::within(20), busy), delete);
    left(&cluster, &[]).await;
    cluster.shutdown().await;
}
