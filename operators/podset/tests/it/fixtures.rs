//! PodSets of both flavours, and their pods.

use std::{collections::BTreeMap, fmt::Debug};

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use kubewright::condition;
use kubewright::simulation::env::{TestEnv, eventually};
use podset_operator::api::{app, k8stest};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

pub(crate) use podset_operator::api::{app::v1alpha1::PodSet as Second, k8stest::v1alpha1::PodSet as First};

pub(crate) async fn env() -> TestEnv {
    TestEnv::new(podset_operator::register, podset_operator::crds()).await
}

/// The parts of a flavour that these tests need.
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

    /// Returns the names of the pods, and the status and reason of the condition `Ready`.
    fn reported(&self) -> (Vec<String>, String, String);
}

impl Flavour for First {
    fn web(replicas: i32) -> Self {
        Self::new("web", k8stest::v1alpha1::PodSetSpec { replicas, template: None })
    }

    fn labels() -> BTreeMap<String, String> {
        [("app", "podset"), ("podset_cr", "web")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn reported(&self) -> (Vec<String>, String, String) {
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

    fn reported(&self) -> (Vec<String>, String, String) {
        let status = self.status.clone().unwrap_or_default();
        assert_eq!(usize::try_from(status.available_replicas), Ok(status.pod_names.len()));
        let ready = condition::get(&status.conditions, "Ready").map(|it| (it.status.clone(), it.reason.clone()));
        let (ready, reason) = ready.unwrap_or_default();
        (status.pod_names, ready, reason)
    }
}

/// Returns the active pods sorted by name: not ended, not being deleted, and controlled by the present `web`.
pub(crate) async fn active<K: Flavour>(env: &TestEnv) -> Vec<Pod> {
    let uid = env.api::<K>().get_opt("web").await.unwrap().and_then(|set| set.uid());
    let mut pods = env.pods().await;
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

/// Waits until `web` has this many pods and its status names exactly these; returns their names.
pub(crate) async fn reaches<K: Flavour>(env: &TestEnv, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    eventually(&format!("there are {count} pods and the status names them"), async || {
        names = active::<K>(env).await.iter().map(|pod| pod.name_any()).collect();
        names.len() == count && reported::<K>(env).await.0 == names
    })
    .await;
    names
}

pub(crate) async fn reported<K: Flavour>(env: &TestEnv) -> (Vec<String>, String, String) {
    env.get::<K>("web").await.reported()
}

pub(crate) async fn scale<K: Flavour>(env: &TestEnv, replicas: i32) {
    env.edit::<K>("web", json!({"spec": {"replicas": replicas}})).await;
}

/// A pod with the labels of `web`'s pods, and no owner.
pub(crate) async fn stray<K: Flavour>(env: &TestEnv, name: &str, owners: Value) -> Pod {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": K::labels(), "ownerReferences": owners},
        "spec": {"containers": [{"name": "other", "image": "busybox"}]},
    });
    env.create(serde_json::from_value::<Pod>(pod).unwrap()).await
}
