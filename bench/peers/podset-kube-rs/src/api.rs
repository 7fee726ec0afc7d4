//! The kind `PodSet`, as `operators/podset` installs it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The desired number of pods.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "app.example.com",
    version = "v1alpha1",
    kind = "PodSet",
    namespaced,
    status = "PodSetStatus",
    doc = "PodSet keeps a number of pods alive."
)]
pub struct PodSetSpec {
    /// The number of pods.
    pub replicas: i32,
}

/// The last observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetStatus {
    /// The names of the active pods, sorted.
    #[serde(default)]
    pub pod_names: Vec<String>,

    /// The number of active pods.
    #[serde(default)]
    pub available_replicas: i32,

    /// The label selector of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// The observed generation of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
