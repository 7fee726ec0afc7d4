//! A pod as far as a PodSet cares: the cache keeps no more of it.

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Serialize};

// ANCHOR: view
/// What of a pod is decided by.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, Resource)]
#[resource(inherit = "Pod")]
pub(crate) struct PodView {
    #[serde(with = "kubewright::view::without_annotations")]
    pub(crate) metadata: ObjectMeta,
    pub(crate) status: Option<PodStatus>,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct PodStatus {
    pub(crate) phase: Option<String>,
    pub(crate) conditions: Option<Vec<PodCondition>>,
}

/// What is true of it, and not since when or why.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct PodCondition {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) status: String,
}
// ANCHOR_END: view

/// A pod that was just created.
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
