//! The world of these tests: PodSets of both flavours, and their pods.

use std::{collections::BTreeMap, fmt::Debug};

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use kubewright::condition;
use operator_kit::{World, eventually};
use podset_operator::api::{app, k8stest};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

pub(crate) use podset_operator::api::{app::v1alpha1::PodSet as Second, k8stest::v1alpha1::PodSet as First};

pub(crate) async fn world() -> World {
    World::new(podset_operator::register, podset_operator::crds()).await
}

/// What these tests need of a flavour.
pub(crate) trait Flavour:
    Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// A set called `web`.
    fn web(replicas: i32) -> Self;

    /// The labels of the pods of `web`.
    fn labels() -> BTreeMap<String, String>;

    /// A status that names a pod that isn't there.
    fn lie() -> Value;

    /// The names of the pods and the status and reason of the condition `Ready`.
    fn told(&self) -> (Vec<String>, String, String);
}

impl Flavour for First {
    fn web(replicas: i32) -> Self {
        Self::new("web", k8stest::v1alpha1::PodSetSpec { replicas, template: None })
    }

    fn labels() -> BTreeMap<String, String> {
        [("app", "podset"), ("podset_cr", "web")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn lie() -> Value {
        json!({"replicas": 1, "pod_names": ["web-none"]})
    }

    fn told(&self) -> (Vec<String>, String, String) {
        let status = self.status.clone().unwrap_or_default();
        assert_eq!(usize::try_from(status.replicas), Ok(status.pod_names.len()));
        let ready = condition::get(&status.conditions, "Ready").map(|it| (it.status.clone(), it.reason.clone()));
        let (ready, reason) = ready.unwrap_or_default();
        (status.pod_names, ready, reason)
    }
}

impl Flavour for Second {
    fn web(replicas: i32) -> Self {
        Self::new("web", app::v1alpha1::PodSetSpec { replicas, template: None })
    }

    fn labels() -> BTreeMap<String, String> {
        [("app", "web"), ("version", "v0.1")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn lie() -> Value {
        json!({"availableReplicas": 1, "podNames": ["web-none"]})
    }

    fn told(&self) -> (Vec<String>, String, String) {
        let status = self.status.clone().unwrap_or_default();
        assert_eq!(usize::try_from(status.available_replicas), Ok(status.pod_names.len()));
        let ready = condition::get(&status.conditions, "Ready").map(|it| (it.status.clone(), it.reason.clone()));
        let (ready, reason) = ready.unwrap_or_default();
        (status.pod_names, ready, reason)
    }
}

/// The pods that count: not ended, not being deleted, controlled by `web` as it is now. By name.
pub(crate) async fn active<K: Flavour>(world: &World) -> Vec<Pod> {
    let uid = world.api::<K>().get_opt("web").await.unwrap().and_then(|set| set.uid());
    let mut pods = world.pods().await;
    pods.retain(|pod| {
        let owners = pod.owner_references();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        owners.iter().any(|owner| Some(&owner.uid) == uid.as_ref() && owner.controller == Some(true))
            && !["Succeeded", "Failed"].contains(&phase)
            && pod.metadata.deletion_timestamp.is_none()
    });
    pods.sort_by_key(|pod| pod.name_any());
    pods
}

/// Waits until `web` has as many pods and its status names exactly these; gives their names.
pub(crate) async fn reaches<K: Flavour>(world: &World, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    eventually(&format!("there are {count} pods and the status names them"), async || {
        names = active::<K>(world).await.iter().map(|pod| pod.name_any()).collect();
        names.len() == count && told::<K>(world).await.0 == names
    })
    .await;
    names
}

pub(crate) async fn told<K: Flavour>(world: &World) -> (Vec<String>, String, String) {
    world.get::<K>("web").await.told()
}

pub(crate) async fn scale<K: Flavour>(world: &World, replicas: i32) {
    world.edit::<K>("web", json!({"spec": {"replicas": replicas}})).await;
}

/// A pod with the labels of the pods of `web`, and no owner.
pub(crate) async fn stray<K: Flavour>(world: &World, name: &str, owners: Value) -> Pod {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": K::labels(), "ownerReferences": owners},
        "spec": {"containers": [{"name": "other", "image": "busybox"}]},
    });
    world.create(serde_json::from_value::<Pod>(pod).unwrap()).await
}
