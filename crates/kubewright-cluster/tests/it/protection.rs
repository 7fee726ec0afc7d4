//! The protection of volumes, claims and classes of attributes that are in use.

use k8s_openapi::api::{
    core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::VolumeAttributesClass,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kubewright_cluster::{Cluster, Pods};
use serde_json::json;

use crate::bare;

fn claim() -> PersistentVolumeClaim {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    serde_json::from_value(json!({"metadata": {"name": "data"}, "spec": spec})).unwrap()
}

#[tokio::test]
async fn a_claim_is_kept_while_a_pod_on_a_node_uses_it() {
    let cluster = bare().await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client());
    let created = claims.create(&PostParams::default(), &claim()).await.unwrap();
    assert_eq!(created.finalizers(), ["kubernetes.io/pvc-protection"]);
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "nodeName": "elsewhere", "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    }});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    // The controller has seen a later write when it has released a claim that no pod uses.
    let mut other = claim();
    other.metadata.name = Some("other".into());
    claims.create(&PostParams::default(), &other).await.unwrap();
    claims.delete("other", &DeleteParams::default()).await.unwrap();
    let left = |claims: &[&PersistentVolumeClaim]| claims.iter().map(|claim| claim.name_any()).collect::<Vec<_>>();
    cluster.expect::<PersistentVolumeClaim>(|claims| left(claims) == ["data"]).await.unwrap();
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    cluster.expect::<PersistentVolumeClaim>(|claims| claims.is_empty()).await.unwrap();
}

#[tokio::test]
async fn a_volume_is_kept_while_it_is_bound() {
    // The binder would find no claim for the volume.
    let controllers = "persistentvolume-protection-controller".parse().unwrap();
    let cluster = Cluster::builder().pods(Pods::None).controllers(controllers).start().await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    let volume = serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": spec})).unwrap();
    volumes.create(&PostParams::default(), &volume).await.unwrap();
    let phase = |phase: &str| Patch::Merge(json!({"status": {"phase": phase}}));
    volumes.patch_status("v", &PatchParams::default(), &phase("Bound")).await.unwrap();
    volumes.delete("v", &DeleteParams::default()).await.unwrap();
    assert!(volumes.get("v").await.unwrap().metadata.deletion_timestamp.is_some());
    volumes.patch_status("v", &PatchParams::default(), &phase("Released")).await.unwrap();
    cluster.expect::<PersistentVolume>(|volumes| volumes.is_empty()).await.unwrap();
}

#[tokio::test]
async fn a_class_of_attributes_is_kept_while_a_claim_names_it() {
    let cluster = bare().await;
    let classes: Api<VolumeAttributesClass> = Api::all(cluster.client());
    let class = json!({"metadata": {"name": "fast"}, "driverName": "a.b", "parameters": {"speed": "1"}});
    let created = classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    assert_eq!(created.finalizers(), ["kubernetes.io/vac-protection"]);
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client());
    let mut named = claim();
    named.spec.as_mut().unwrap().volume_attributes_class_name = Some("fast".into());
    claims.create(&PostParams::default(), &named).await.unwrap();
    classes.delete("fast", &DeleteParams::default()).await.unwrap();
    // The controller has seen the deletion of the class when it has released a claim that was deleted later.
    let mut other = claim();
    other.metadata.name = Some("other".into());
    claims.create(&PostParams::default(), &other).await.unwrap();
    claims.delete("other", &DeleteParams::default()).await.unwrap();
    cluster.expect::<PersistentVolumeClaim>(|claims| claims.len() == 1).await.unwrap();
    assert!(classes.get("fast").await.unwrap().metadata.deletion_timestamp.is_some());
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    cluster.expect::<VolumeAttributesClass>(|classes| classes.is_empty()).await.unwrap();
}

#[tokio::test]
async fn a_namespace_with_claims_can_be_deleted() {
    let cluster = bare().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client(), "shop");
    claims.create(&PostParams::default(), &claim()).await.unwrap();
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    cluster.expect::<Namespace>(|all| all.iter().all(|one| one.name_any() != "shop")).await.unwrap();
}
