//! Persistent volumes and claims.

use k8s_openapi::api::{
    core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PostParams},
};
use kubewright_cluster::Cluster;
use serde_json::{Value, json};

use crate::{background, bare, create, exit_code, gone, pod, pods, replicaset::simulated, running, until};

fn claims(cluster: &Cluster) -> Api<PersistentVolumeClaim> {
    Api::namespaced(cluster.client(), "default")
}

async fn claim(cluster: &Cluster, name: &str, spec: Value) {
    let mut claim = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        claim["spec"][field] = value.clone();
    }
    let claim = serde_json::from_value(claim).expect("a claim");
    claims(cluster).create(&PostParams::default(), &claim).await.expect("created");
}

async fn volume(cluster: &Cluster, name: &str, size: &str) {
    let volume = json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/srv"},
    }});
    let volume: PersistentVolume = serde_json::from_value(volume).expect("a volume");
    Api::all(cluster.client()).create(&PostParams::default(), &volume).await.expect("created");
}

/// Waits until a claim is bound, and returns it.
async fn bound(cluster: &Cluster, name: &str) -> PersistentVolumeClaim {
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.name_any() == name && claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    };
    let all = cluster.expect::<PersistentVolumeClaim>(|claims| claims.iter().any(|claim| is_bound(claim)));
    all.await.expect("bound").into_iter().find(is_bound).expect("the claim")
}

fn volume_of(claim: &PersistentVolumeClaim) -> String {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default()
}

fn phase(volume: &PersistentVolume) -> String {
    volume.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_a_volume_of_the_default_class_which_goes_with_it() {
    let cluster = simulated().await;
    claim(&cluster, "data", json!({})).await;
    let data = bound(&cluster, "data").await;
    assert_eq!(data.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()), Some("standard"));
    let capacity = data.status.as_ref().and_then(|status| status.capacity.clone()).unwrap_or_default();
    assert_eq!(capacity["storage"].0, "1Gi");
    let provisioned = cluster.expect::<PersistentVolume>(|all| all.len() == 1 && phase(all[0]) == "Bound").await;
    assert_eq!(provisioned.expect("a volume")[0].name_any(), volume_of(&data));
    claims(&cluster).delete("data", &background()).await.expect("deleted");
    cluster.expect::<PersistentVolumeClaim>(|claims| claims.is_empty()).await.expect("gone");
    cluster.expect::<PersistentVolume>(|volumes| volumes.is_empty()).await.expect("gone");
    cluster.shutdown().await;
}

/// Creates a pod that uses a claim.
async fn consumer(cluster: &Cluster, name: &str, claim: &str) {
    let volumes = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]});
    create(cluster, &pod(name, "true", volumes)).await;
}

/// Creates a class whose claims wait for their first consumer.
async fn delayed_class(cluster: &Cluster, name: &str, provisioner: &str) {
    let class = json!({
        "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
    });
    let class: StorageClass = serde_json::from_value(class).expect("a class");
    Api::all(cluster.client()).create(&PostParams::default(), &class).await.expect("created");
}

/// Waits for an event about a claim.
async fn reported(cluster: &Cluster, message: &str) {
    let is_reported = |events: &[&Event]| events.iter().any(|event| event.message.as_deref() == Some(message));
    cluster.expect::<Event>(is_reported).await.expect(message);
}

#[tokio::test(start_paused = true)]
async fn the_first_pod_of_a_claim_gets_a_volume_that_its_node_reaches() {
    let cluster = simulated().await;
    delayed_class(&cluster, "local", "kubernetes.io/no-provisioner").await;
    claim(&cluster, "data", json!({"storageClassName": "local"})).await;
    reported(&cluster, "waiting for first consumer to be created before binding").await;
    for (name, size, node) in [("elsewhere", "1Gi", "other"), ("here", "2Gi", "kubewright")] {
        let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        let volume = json!({"metadata": {"name": name}, "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "local": {"path": "/srv"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }});
        let volume: PersistentVolume = serde_json::from_value(volume).expect("a volume");
        Api::all(cluster.client()).create(&PostParams::default(), &volume).await.expect("created");
    }
    consumer(&cluster, "web", "data").await;
    assert_eq!(volume_of(&bound(&cluster, "data").await), "here");
    until(&cluster, "web", crate::is_running).await;
    cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_provisioner_is_reported_the_node_of_the_first_pod() {
    let cluster = simulated().await;
    delayed_class(&cluster, "far", "example.com/csi").await;
    claim(&cluster, "data", json!({"storageClassName": "far"})).await;
    reported(&cluster, "waiting for first consumer to be created before binding").await;
    let selected = |claims: &[&PersistentVolumeClaim]| {
        let node = claims.first().and_then(|claim| claim.annotations().get("volume.kubernetes.io/selected-node"));
        node.map(String::as_str) == Some("kubewright")
    };
    consumer(&cluster, "web", "data").await;
    cluster.expect::<PersistentVolumeClaim>(selected).await.expect("a node");
    // The provisioner fails, and then succeeds.
    let unmark = Patch::Merge(json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}}));
    claims(&cluster).patch("data", &Default::default(), &unmark).await.expect("patched");
    let failed = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut errors = conditions.filter(|one| one.reason.as_deref() == Some("SchedulerError"));
        let why = "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \"data\"";
        errors.any(|one| one.message.as_deref() == Some(why))
    };
    until(&cluster, "web", failed).await;
    let marked = cluster.expect::<PersistentVolumeClaim>(selected).await.expect("a node again")[0].clone();
    let volume = json!({"metadata": {"name": "made"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "far",
        "hostPath": {"path": "/srv"}, "claimRef": {"namespace": "default", "name": "data", "uid": marked.uid()},
    }});
    let volume: PersistentVolume = serde_json::from_value(volume).expect("a volume");
    Api::all(cluster.client()).create(&PostParams::default(), &volume).await.expect("created");
    assert_eq!(volume_of(&bound(&cluster, "data").await), "made");
    until(&cluster, "web", crate::is_running).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_smallest_volume_is_bound_and_retained() {
    let cluster = bare().await;
    for (name, size) in [("large", "5Gi"), ("small", "2Gi"), ("tiny", "500Mi")] {
        volume(&cluster, name, size).await;
    }
    let free = |volumes: &[&PersistentVolume]| volumes.iter().all(|volume| phase(volume) == "Available");
    cluster.expect::<PersistentVolume>(free).await.expect("available");
    claim(&cluster, "data", json!({})).await;
    let data = bound(&cluster, "data").await;
    assert_eq!(volume_of(&data), "small");
    let capacity = data.status.as_ref().and_then(|status| status.capacity.clone()).unwrap_or_default();
    assert_eq!(capacity["storage"].0, "2Gi");
    claim(&cluster, "named", json!({"volumeName": "large"})).await;
    assert_eq!(volume_of(&bound(&cluster, "named").await), "large");
    claims(&cluster).delete("data", &background()).await.expect("deleted");
    let released = |volumes: &[&PersistentVolume]| {
        volumes.iter().map(|volume| format!("{} {}", volume.name_any(), phase(volume))).collect::<Vec<_>>()
            == ["large Bound", "small Released", "tiny Available"]
    };
    cluster.expect::<PersistentVolume>(released).await.expect("released");
    claim(&cluster, "data", json!({})).await;
    let waits = |events: &[&Event]| {
        let message = "no persistent volumes available for this claim and no storage class is set";
        events.iter().any(|event| event.message.as_deref() == Some(message))
    };
    cluster.expect::<Event>(waits).await.expect("an event");
    volume(&cluster, "late", "1Gi").await;
    assert_eq!(volume_of(&bound(&cluster, "data").await), "late");
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    volumes.delete("large", &background()).await.expect("accepted");
    let forget = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes.patch("large", &Default::default(), &forget).await.expect("forced");
    let lost = |claims: &[&PersistentVolumeClaim]| {
        let phase = |claim: &PersistentVolumeClaim| claim.status.as_ref().and_then(|status| status.phase.clone());
        claims.iter().any(|claim| claim.name_any() == "named" && phase(claim).as_deref() == Some("Lost"))
    };
    cluster.expect::<PersistentVolumeClaim>(lost).await.expect("lost");
}

#[tokio::test]
async fn files_survive_the_pods_of_a_claim() {
    let cluster = running().await;
    let using = |name: &str, command: &str| {
        let volumes = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
        let mut pod = pod(name, command, volumes);
        let mounts = json!([{"name": "data", "mountPath": "/data"}]);
        let container = &mut pod.spec.as_mut().expect("a spec").containers[0];
        container.volume_mounts = serde_json::from_value(mounts).expect("mounts");
        pod
    };
    create(&cluster, &using("writer", "echo kept > $KUBEWRIGHT_ROOT/data/file")).await;
    let waits = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut messages = conditions.filter_map(|one| one.message.as_deref());
        messages.any(|message| message.contains("persistentvolumeclaim \"data\" not found"))
    };
    until(&cluster, "writer", waits).await;
    claim(&cluster, "data", json!({})).await;
    until(&cluster, "writer", |pod| exit_code(pod) == Some(0)).await;
    pods(&cluster).delete("writer", &background()).await.expect("deleted");
    gone(&cluster, "writer").await;
    create(&cluster, &using("reader", "grep kept $KUBEWRIGHT_ROOT/data/file")).await;
    until(&cluster, "reader", |pod| exit_code(pod) == Some(0)).await;

    let volume = volume_of(&bound(&cluster, "data").await);
    let volume = Api::<PersistentVolume>::all(cluster.client()).get(&volume).await.expect("read");
    let folder = volume.spec.and_then(|spec| spec.host_path).map(|source| source.path).expect("a folder");
    assert!(std::path::Path::new(&folder).join("file").exists());
    pods(&cluster).delete("reader", &background()).await.expect("deleted");
    claims(&cluster).delete("data", &background()).await.expect("deleted");
    cluster.expect::<PersistentVolume>(|volumes| volumes.is_empty()).await.expect("gone");
    assert!(!std::path::Path::new(&folder).exists());
    cluster.shutdown().await;
}

#[tokio::test]
async fn ephemeral_volumes_have_claims_that_end_with_their_pods() {
    let cluster = running().await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let template = json!({"metadata": {"labels": {"for": "scratch"}}, "spec": spec});
    let volumes = json!({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]});
    let mut user = pod("user", "echo used > $KUBEWRIGHT_ROOT/scratch/file", volumes);
    let mounts = json!([{"name": "scratch", "mountPath": "/scratch"}]);
    user.spec.as_mut().expect("a spec").containers[0].volume_mounts = serde_json::from_value(mounts).expect("mounts");
    create(&cluster, &user).await;
    until(&cluster, "user", |pod| exit_code(pod) == Some(0)).await;
    let claim = bound(&cluster, "user-scratch").await;
    assert_eq!(claim.labels().get("for").map(String::as_str), Some("scratch"));
    assert_eq!(claim.owner_references().first().map(|owner| &*owner.name), Some("user"));
    pods(&cluster).delete("user", &background()).await.expect("deleted");
    let none = |claims: &[&PersistentVolumeClaim]| claims.is_empty();
    cluster.expect::<PersistentVolumeClaim>(none).await.expect("the claim ends with its pod");
    cluster.shutdown().await;
}
