//! The record that a run has begun: the durable memory that makes it the only one.
//!
//! It is kept in an annotation of the At, because status may be wiped and pods may be deleted. It names the At by uid:
//! a manifest that was exported from a finished At and applied again makes a new At, which runs again.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::v1alpha1::At;

/// The annotation of an At that holds its [`Run`], as JSON.
pub(crate) const RUN: &str = "cnat.d2iq.com/run";

/// The annotation of a pod that tells from which generation of the At's spec it was made.
pub(crate) const GENERATION: &str = "cnat.d2iq.com/generation";

/// The finalizer of a pod whose run isn't recorded yet.
pub(crate) const UNRECORDED: &str = "cnat.d2iq.com/unrecorded";

/// That the pod of an At was created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    /// The uid of the At.
    pub(crate) at: String,
    /// The name of the pod.
    pub(crate) pod: String,
    /// The uid of the pod.
    pub(crate) pod_uid: String,
    /// The generation of the At's spec that the pod was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) generation: Option<i64>,
    /// When the pod was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_time: Option<Time>,
}

impl Run {
    /// The run that this pod, which the At controls, is.
    pub(crate) fn of(at: &At, pod: &Pod) -> Self {
        Self {
            at: at.uid().unwrap_or_default(),
            pod: pod.name_any(),
            pod_uid: pod.uid().unwrap_or_default(),
            generation: pod.annotations().get(GENERATION).and_then(|generation| generation.parse().ok()),
            start_time: pod.creation_timestamp(),
        }
    }

    /// The run that is recorded with this At, if it ran.
    pub(crate) fn recorded(at: &At) -> Option<Self> {
        let run: Self = serde_json::from_str(at.annotations().get(RUN)?).ok()?;
        (Some(&run.at) == at.metadata.uid.as_ref()).then_some(run)
    }

    /// The run that the status tells of, if it tells of one.
    ///
    /// It is a second witness, heard only against running again: `kubectl replace` takes annotations away.
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

    /// The merge patch that records this run. The uid in it makes it fail on another At of the same name.
    pub(crate) fn patch(&self) -> Value {
        let annotations = BTreeMap::from([(RUN, serde_json::to_string(self).unwrap_or_default())]);
        json!({"metadata": {"uid": self.at, "annotations": annotations}})
    }
}
