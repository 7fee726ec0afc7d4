//! The API types of `Captain`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The desired state.
///
/// Run `kubewright manifests` after a change.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "crew.testproject.org",
    version = "v2alpha1",
    kind = "Captain",
    plural = "captains",
    namespaced,
    status = "CaptainStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "One Captain.",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[derive(kubewright::conversion::Convert)]
#[convert(
    hub = crate::api::v1::CaptainSpec,
    kind = Captain,
    hub_kind = crate::api::v1::Captain,
    status = converted
)]
pub struct CaptainSpec {
    /// An example field, to be replaced by your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foo: Option<String>,
}

/// The observed state. It is never an input of the reconciler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[derive(kubewright::conversion::Convert)]
#[convert(hub = crate::api::v1::CaptainStatus)]
pub struct CaptainStatus {
    /// The conditions. `Ready` is true when the actual state matches the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
