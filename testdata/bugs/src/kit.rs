//! What the operators of the bank share: names of types, and the children that they create.

pub(crate) use std::{collections::BTreeMap, time::Duration};

pub(crate) use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::{
    api::core::v1::{Container, PersistentVolumeClaimSpec, PodSpec, VolumeResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
pub(crate) use kube::{
    CustomResource,
    api::{ObjectMeta, Patch},
};
pub(crate) use kubewright::{
    prelude::*,
    simulation::{Sim, Span, World},
};
pub(crate) use schemars::JsonSchema;
pub(crate) use serde::{Deserialize, Serialize};
pub(crate) use serde_json::json;

pub(crate) use crate::Bug;

/// The group of the bank's kinds.
pub(crate) const API: &str = "bugs.kubewright.dev/v1";

/// Returns the metadata of an object with this name.
pub(crate) fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }
}

/// Returns the metadata of an object whose name the API server generates.
pub(crate) fn generated(prefix: &str) -> ObjectMeta {
    ObjectMeta { generate_name: Some(prefix.into()), ..ObjectMeta::default() }
}

/// Returns a config map with one entry.
pub(crate) fn config_map(metadata: ObjectMeta, key: &str, value: &str) -> ConfigMap {
    ConfigMap { metadata, data: Some([(key.into(), value.into())].into()), ..ConfigMap::default() }
}

/// Returns an entry of a config map, or an empty text.
pub(crate) fn entry<'a>(map: &'a ConfigMap, key: &str) -> &'a str {
    map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str).unwrap_or_default()
}

/// Returns a pod with one container.
pub(crate) fn pod(metadata: ObjectMeta, image: &str) -> Pod {
    let container = Container { name: "main".into(), image: Some(image.into()), ..Container::default() };
    let spec = PodSpec { containers: vec![container], ..PodSpec::default() };
    Pod { metadata, spec: Some(spec), status: None }
}

/// Returns a claim of one gigabyte.
pub(crate) fn claim(metadata: ObjectMeta) -> PersistentVolumeClaim {
    let requests = [("storage".to_owned(), Quantity("1Gi".into()))].into();
    let resources = VolumeResourceRequirements { requests: Some(requests), ..VolumeResourceRequirements::default() };
    let spec = PersistentVolumeClaimSpec {
        access_modes: Some(vec!["ReadWriteOnce".into()]),
        resources: Some(resources),
        ..PersistentVolumeClaimSpec::default()
    };
    PersistentVolumeClaim { metadata, spec: Some(spec), status: None }
}

/// Returns the manifest of an object of one of the bank's kinds in the namespace `default`.
pub(crate) fn manifest(kind: &str, name: &str, spec: serde_json::Value) -> String {
    manifest_in("default", kind, name, spec)
}

/// Returns the manifest of an object of one of the bank's kinds.
pub(crate) fn manifest_in(namespace: &str, kind: &str, name: &str, spec: serde_json::Value) -> String {
    let metadata = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}).to_string()
}

/// Returns the manifest of a config map that belongs to nobody.
pub(crate) fn user_map(name: &str, key: &str, value: &str) -> String {
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: value}}).to_string()
}

/// Returns the manifest of a namespace.
pub(crate) fn namespace(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string()
}

/// Returns whether the object is still as it was read: the same object, with the same spec, and not being deleted.
///
/// Deletions can't be undone, and objects outside the reach of garbage collection stay, so an operator should ask
/// before both.
///
/// # Errors
/// If the API server doesn't answer.
pub(crate) async fn is_current<K: kubewright::object::Object>(
    object: &K,
    ctx: &Context<K>,
) -> Result<bool, ClientError> {
    let state = |object: &K| {
        let meta = object.meta();
        (meta.uid.clone(), meta.generation, meta.deletion_timestamp.is_some())
    };
    let live = ctx.live().get::<K>(ctx.key()).await?;
    Ok(live.as_ref().map(state) == Some(state(object)))
}

/// Returns whether the object has this UID for its controller.
pub(crate) fn is_child_of(child: &impl kube::Resource, parent: &impl kube::Resource) -> bool {
    parent.meta().uid.as_deref().is_some_and(|uid| kubewright::owner::is_controlled_by(child, uid))
}

/// Returns the manifest of a secret that belongs to nobody.
pub(crate) fn user_secret(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}}).to_string()
}
