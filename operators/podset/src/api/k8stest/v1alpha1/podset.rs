//! The first flavour of the kind `PodSet`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Template;

/// The number of pods and their template.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "k8stest.justin0u0.com",
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
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name":"Desired","type":"integer","jsonPath":".spec.replicas"}"#,
    printcolumn = r#"{"name":"Current","type":"integer","jsonPath":".status.replicas"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct PodSetSpec {
    /// The desired number of pods, from 0 to 5,000: the status contains the name of each, and an object must be smaller
    /// than 1.5 MB.
    #[schemars(range(min = 0, max = 5000))]
    pub replicas: i32,

    /// The template of the pods. Defaults to one container `busybox` that sleeps for an hour. The labels that select a
    /// PodSet's pods are added. A change applies to new pods only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
}

/// The observed state. It is never an input of the reconciler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PodSetStatus {
    /// The number of pods that are Pending or Running and not being deleted.
    #[serde(default)]
    pub replicas: i32,

    /// The sorted names of these pods.
    #[serde(default)]
    pub pod_names: Vec<String>,

    /// The label selector of the pods, for `kubectl scale` and autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// The generation of the spec that this status describes.
    #[serde(rename = "observedGeneration", default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`: whether as many pods as desired are ready, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
