//! The kind `Lolcow`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The maximum length of a greeting in characters.
pub const MAX_GREETING: usize = 4096;

/// The greeting and the node port of the page.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "my.domain",
    version = "v1alpha1",
    kind = "Lolcow",
    plural = "lolcows",
    namespaced,
    status = "LolcowStatus",
    shortname = "cow",
    category = "kubewright",
    derive = "Default",
    derive = "PartialEq",
    doc = "Lolcow serves a web page on which a cow says something.",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"URL","type":"string","jsonPath":".status.url"}"#,
    printcolumn = r#"{"name":"Greeting","type":"string","jsonPath":".spec.greeting","priority":1}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct LolcowSpec {
    /// The node port of the page, in most clusters from 30000 to 32767. Without it, or with 0, the API server chooses
    /// one, which `status.url` contains. A port that is taken or out of range is reported in the condition
    /// `ServiceApplied`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,

    /// The greeting, of at most 4096 characters. Without it, or if it is empty, the cow tells a fortune.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // A NUL character can't be passed as a program's argument.
    #[schemars(length(max = MAX_GREETING), regex(pattern = r"^[^\x00]*$"))]
    pub greeting: Option<String>,
}

/// The observed state. It is never an input of the reconciler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LolcowStatus {
    /// The URL of the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The number of ready pods.
    pub ready_replicas: i32,

    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`: whether the page shows the greeting at the port of the spec, and why not. `DeploymentApplied`,
    /// `ServiceApplied`: whether that child is as specified, and why not. `Progressing`: whether pods are being
    /// replaced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
