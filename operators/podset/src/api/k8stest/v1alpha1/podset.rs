//! The first flavour of the kind `PodSet`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Template;

/// How many pods, and of what.
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
    /// How many pods there are to be: none up to 5,000, since the status lists each by name and an object has to stay
    /// below 1.5 MB.
    #[schemars(range(min = 0, max = 5000))]
    pub replicas: i32,

    /// What pods are made from. Defaults to one container `busybox` that sleeps for an hour. The labels that tell a
    /// PodSet's pods are added. A change is for new pods only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
}

/// The observed state. It is never an input of the reconciler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PodSetStatus {
    /// How many pods are Pending or Running and not being deleted.
    #[serde(default)]
    pub replicas: i32,

    /// The names of these pods, sorted.
    #[serde(default)]
    pub pod_names: Vec<String>,

    /// The label selector of the pods, for `kubectl scale` and autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// The generation of the spec that this status tells about.
    #[serde(rename = "observedGeneration", default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`: as many pods as desired are ready, or what is in the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
