//! The kind `At`: a command, and the time at which to run it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is to run, and when.
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
    /// When to run: a time as of RFC 3339, such as `2020-01-30T10:02:00Z` or `2020-01-30T11:02:00+01:00`. A time in the
    /// past runs at once. It may be edited until the command has started.
    pub schedule: String,

    /// What to run: split into words as a shell would, with quotes and backslashes. Nothing else of a shell applies: for
    /// variables, pipes and the like run one, as in `sh -c 'date | tee /tmp/now'`.
    pub command: String,

    /// The image to run the command in. Defaults to `busybox`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image: Option<String>,

    /// How many seconds late the command may still start, for instance after the operator was down. Without it, however
    /// late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,
}

/// What became of it, as last observed. Nothing is ever run because of what is written here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AtStatus {
    /// Where the At is on its way from PENDING through RUNNING to DONE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The generation of the spec that this status tells about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The pod that runs, or ran, the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,

    /// The uid of that pod.
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,

    /// When that pod was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When the command ended, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// The exit code of the command, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,

    /// `Ready`: all is in order, or what is in the way. `Complete`: nothing more will happen, and how it ended.
    /// `EditIgnored`: the spec was edited after the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Where an At is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    /// The time hasn't come, or something is in the way.
    Pending,
    /// The pod was created and hasn't ended.
    Running,
    /// The pod has ended or is gone, or it was too late to start. An At that ran stays here for good.
    Done,
}

impl Phase {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Done => "DONE",
        }
    }
}
