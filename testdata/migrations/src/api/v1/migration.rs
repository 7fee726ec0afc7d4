//! The API types of `Migration`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

// ANCHOR: spec
/// The desired state.
///
/// Run `kubewright manifests` after a change.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "data.example.com",
    version = "v1",
    kind = "Migration",
    plural = "migrations",
    namespaced,
    status = "MigrationStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "The schema of a database.",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct MigrationSpec {
    /// The image with the migrations.
    pub image: String,
    /// The version of the schema to migrate to.
    pub version: u32,
}
// ANCHOR_END: spec

// ANCHOR: status
/// The observed state. It is never an input of the reconciler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationStatus {
    /// The name of the latest Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The version that the latest Job migrates to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The conditions. `Ready` is true when the actual state matches the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
// ANCHOR_END: status
