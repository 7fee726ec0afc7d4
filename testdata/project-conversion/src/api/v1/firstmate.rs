//! The kind `FirstMate`: what its objects say, and what is told about them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a user wants.
///
/// After a change, `kubewright manifests` writes the definition anew.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "crew.testproject.org",
    version = "v1",
    kind = "FirstMate",
    plural = "firstmates",
    namespaced,
    status = "FirstMateStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "One FirstMate.",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct FirstMateSpec {
    /// An example of a field: put your own in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foo: Option<String>,
}

/// What was last observed. Nothing is ever done because of what is written here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirstMateStatus {
    /// `Ready`: that all is as the spec says, or what is in the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
