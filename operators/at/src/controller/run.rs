//! The record of a run, which prevents a second one.
//!
//! The record is an annotation of the At, because the status may be wiped and pods may be deleted. It contains the UID
//! of the At: a manifest that was exported from a finished At and is applied again creates a new At, which runs again.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::v1alpha1::At;

/// The annotation of an At with its [`Run`] as JSON.
pub(crate) const RUN: &str = "cnat.d2iq.com/run";

/// The annotation of a pod with the generation of the At's spec.
pub(crate) const GENERATION: &str = "cnat.d2iq.com/generation";

/// The finalizer of a pod whose run is not recorded yet.
pub(crate) const UNRECORDED: &str = "cnat.d2iq.com/unrecorded";

/// The run of an At, which begins with the creation of its pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    /// The UID of the At.
    pub(crate) at: String,
    /// The name of the pod.
    pub(crate) pod: String,
    /// The UID of the pod.
    pub(crate) pod_uid: String,
    /// The generation of the At's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) generation: Option<i64>,
    /// The creation time of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_time: Option<Time>,
}

impl Run {
    /// Returns the run of a pod that the At controls.
    pub(crate) fn of(at: &At, pod: &Pod) -> Self {
        Self {
            at: at.uid().unwrap_or_default(),
            pod: pod.name_any(),
            pod_uid: pod.uid().unwrap_or_default(),
            generation: pod.annotations().get(GENERATION).and_then(|generation| generation.parse().ok()),
            start_time: pod.creation_timestamp(),
        }
    }

    /// Returns the recorded run of an At.
    pub(crate) fn recorded(at: &At) -> Option<Self> {
        let run: Self = serde_json::from_str(at.annotations().get(RUN)?).ok()?;
        (Some(&run.at) == at.metadata.uid.as_ref()).then_some(run)
    }

    /// Returns the run that the status shows.
    ///
    /// Only used to prevent another run, since `kubectl replace` removes annotations.
    pub(crate) fn witnessed(at: &At) -> Option<Self> {
        let status = at.status.as_ref()?;
        Some(Self {
            at: at.uid()?,
            pod: status.pod_name.clone()?,
            pod_uid: status.pod_uid.clone()?,
            generation: None,
            start_time: status.start_time.clone(),
        })
    }

    /// Returns the merge patch that records the run. It contains the UID, so that it fails on another At of the same
    /// name.
    pub(crate) fn patch(&self) -> Value {
        let annotations = BTreeMap::from([(RUN, serde_json::to_string(self).unwrap_or_default())]);
        json!({"metadata": {"uid": self.at, "annotations": annotations}})
    }
}
