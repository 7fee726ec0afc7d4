//! The fields of a pod that a PodSet needs; the cache keeps only these.

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Serialize};

// ANCHOR: view
/// A pod with the fields that decisions need.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, Resource)]
#[resource(inherit = "Pod")]
pub(crate) struct PodView {
    #[serde(with = "kubewright::view::without_annotations")]
    pub(crate) metadata: ObjectMeta,
    pub(crate) status: Option<PodStatus>,
}

/// The phase and conditions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct PodStatus {
    pub(crate) phase: Option<String>,
    pub(crate) conditions: Option<Vec<PodCondition>>,
}

/// A condition without time and reason.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct PodCondition {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) status: String,
}
// ANCHOR_END: view

/// Converts a pod that was just created.
impl From<Pod> for PodView {
    fn from(Pod { metadata, status, .. }: Pod) -> Self {
        let status = status.map(|status| PodStatus {
            phase: status.phase,
            conditions: status.conditions.map(|conditions| conditions.into_iter().map(Into::into).collect()),
        });
        Self { metadata, status }
    }
}

impl From<k8s_openapi::api::core::v1::PodCondition> for PodCondition {
    fn from(condition: k8s_openapi::api::core::v1::PodCondition) -> Self {
        Self { type_: condition.type_, status: condition.status }
    }
}
