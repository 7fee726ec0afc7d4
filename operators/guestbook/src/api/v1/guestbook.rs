//! The kind `Guestbook`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The wanted pods and their texts.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "webapp.my.domain",
    version = "v1",
    kind = "Guestbook",
    plural = "guestbooks",
    namespaced,
    status = "GuestbookStatus",
    shortname = "gb",
    category = "kubewright",
    derive = "Default",
    derive = "PartialEq",
    doc = "Guestbook keeps the pods of a guestbook's web page: one serves, the others stand by.",
    printcolumn = r#"{"name":"Size","type":"integer","jsonPath":".spec.size"}"#,
    printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.readyReplicas"}"#,
    printcolumn = r#"{"name":"Active","type":"string","jsonPath":".status.active"}"#,
    printcolumn = r#"{"name":"Alias","type":"string","priority":1,"jsonPath":".spec.alias"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct GuestbookSpec {
    /// The number of pods: one serves, the others stand by.
    #[schemars(range(min = 1, max = 10))]
    pub size: i32,

    /// The ConfigMap whose keys `title` and `greeting` contain the texts of the page. A change of it replaces the pods,
    /// standby pods first.
    #[schemars(length(min = 1, max = 15))]
    pub config_map_name: String,

    /// The kind of entries that guests leave.
    #[serde(default)]
    pub alias: Alias,

    /// The image of the page. Defaults to `kubewright/guestbook`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image: Option<String>,
}

/// The kind of entries that guests leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Alias {
    /// A phone number.
    Phone,
    /// A postal address.
    Address,
    /// A name.
    #[default]
    Name,
}

impl Alias {
    /// Returns the value in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Phone => "Phone",
            Self::Address => "Address",
            Self::Name => "Name",
        }
    }
}

/// The observed state. It is never an input of the reconciler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestbookStatus {
    /// The name of the active pod; empty if there is none.
    #[serde(default)]
    pub active: String,

    /// The names of the standby pods, oldest first. The first one that is ready takes over.
    #[serde(default)]
    pub standby: Vec<String>,

    /// The number of ready pods, including the active one.
    #[serde(default)]
    pub ready_replicas: i32,

    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`: whether as many pods as desired are ready, and why not. `Serving`: whether a pod serves. `Configured`:
    /// whether the ConfigMap exists. `Updated`: whether all pods have its present texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
