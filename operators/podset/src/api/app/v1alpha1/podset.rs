//! The second flavour of the kind `PodSet`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Template;

// ANCHOR: spec
/// The number of pods and their template.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "app.example.com",
    version = "v1alpha1",
    kind = "PodSet",
    plural = "podsets",
    namespaced,
    status = "PodSetStatus",
    shortname = "ps",
    category = "kubewright",
    derive = "Default",
    derive = "PartialEq",
    doc = "PodSet keeps a number of pods alive.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.availableReplicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name":"Desired","type":"string","jsonPath":".spec.replicas"}"#,
    printcolumn = r#"{"name":"Available","type":"string","jsonPath":".status.availableReplicas"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct PodSetSpec {
    /// The desired number of pods.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,

    /// The template of the pods. Defaults to one container `busybox` that sleeps for an hour. The labels that select a
    /// PodSet's pods are added. A change applies to new pods only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
}
// ANCHOR_END: spec

fn one() -> i32 {
    1
}

// ANCHOR: status
/// The observed state. It is never an input of the reconciler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetStatus {
    /// The sorted names of the pods that are Pending or Running and not being deleted.
    #[serde(default)]
    pub pod_names: Vec<String>,

    /// The number of pods that are Pending or Running and not being deleted.
    #[serde(default)]
    pub available_replicas: i32,

    /// The label selector of the pods, for `kubectl scale` and autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`: whether as many pods as desired are ready, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
// ANCHOR_END: status
