//! The kind `At`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The command and the time at which to run it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cnat.d2iq.com",
    version = "v1alpha1",
    kind = "At",
    plural = "ats",
    namespaced,
    status = "AtStatus",
    shortname = "cnat",
    category = "kubewright",
    derive = "Default",
    derive = "PartialEq",
    doc = "At runs a command in a pod, once, at a given time.",
    printcolumn = r#"{"name":"Schedule","type":"string","jsonPath":".spec.schedule"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AtSpec {
    /// The time to run the command, in RFC 3339 format, such as `2020-01-30T10:02:00Z` or `2020-01-30T11:02:00+01:00`.
    /// If it is in the past, the command runs at once. It can be edited until the command has started.
    pub schedule: String,

    /// The command, split into words like in a shell, with quotes and backslashes. No other shell syntax applies: for
    /// variables, pipes and the like run a shell, as in `sh -c 'date | tee /tmp/now'`.
    pub command: String,

    /// The image that the command runs in. Defaults to `busybox`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image: Option<String>,

    /// The deadline in seconds for starting a command that missed its time, for example because the operator was down.
    /// Without it there is no deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,
}

/// The last observed state. Nothing runs because of what is written here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AtStatus {
    /// The phase: PENDING, RUNNING or DONE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The pod of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,

    /// The UID of that pod.
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,

    /// The creation time of that pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// The time at which the command ended, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// The exit code of the command, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,

    /// `Ready`: whether the At is in order, and why not. `Complete`: whether nothing more will happen, and how the
    /// command ended. `EditIgnored`: whether the spec was edited after the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The phase of an At.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    /// The time has not come, or the command can't be started.
    Pending,
    /// The pod was created and has not ended.
    Running,
    /// The pod has ended or is gone, or it was too late to start. An At that ran keeps this phase.
    Done,
}

impl Phase {
    /// Returns the value in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Done => "DONE",
        }
    }
}
