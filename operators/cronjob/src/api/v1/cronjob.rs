//! The kind `CronJob`: a schedule, and the Job to create each time.

use k8s_openapi::{
    api::{batch::v1::JobTemplateSpec, core::v1::ObjectReference},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use kubewright::schema::AsWritten;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is to run, and when.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "batch.tutorial.kubebuilder.io",
    version = "v1",
    kind = "CronJob",
    plural = "cronjobs",
    namespaced,
    status = "CronJobStatus",
    shortname = "tcj",
    category = "kubewright",
    derive = "Default",
    derive = "PartialEq",
    doc = "CronJob creates a Job each time its schedule says so.",
    printcolumn = r#"{"name":"Schedule","type":"string","jsonPath":".spec.schedule"}"#,
    printcolumn = r#"{"name":"Suspend","type":"boolean","jsonPath":".spec.suspend"}"#,
    printcolumn = r#"{"name":"Active","type":"string","jsonPath":".status.active[*].name"}"#,
    printcolumn = r#"{"name":"Last Schedule","type":"date","jsonPath":".status.lastScheduleTime"}"#,
    printcolumn = r#"{"name":"Next Schedule","type":"string","jsonPath":".status.nextScheduleTime"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
// ANCHOR: spec
pub struct CronJobSpec {
    /// When to run: five fields of cron (minute, hour, day of month, month, day of week) such as `*/5 * * * *`, or
    /// `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`, or `@every 1h30m`. `CRON_TZ=Europe/Berlin` may come
    /// first.
    #[schemars(length(min = 0))]
    pub schedule: String,

    /// The time zone in which the schedule is read, such as `Europe/Berlin`. Defaults to UTC. A schedule that begins
    /// with `TZ=` or `CRON_TZ=` brings its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,

    /// How many seconds late a Job may still start, for instance after the operator was down. Without it, however late.
    /// With less than 10, runs may be missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,

    /// What to do when the time has come and an earlier Job hasn't ended. `Allow`, the default, runs both. `Forbid`
    /// lets the new one wait, until it is too late or the next time has come. `Replace` deletes the earlier one, and
    /// runs the new one when that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_policy: Option<ConcurrencyPolicy>,

    /// Whether no further Jobs are started. Those that run are left alone. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// The Job to create: a `batch/v1` JobTemplateSpec.
    pub job_template: JobTemplate,

    /// How many Jobs that succeeded are kept. Without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub successful_jobs_history_limit: Option<i32>,

    /// How many Jobs that failed are kept. Without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed_jobs_history_limit: Option<i32>,
}
// ANCHOR_END: spec

/// A `batch/v1` JobTemplateSpec as it was written. What is none is told in a condition, and what makes no valid Job with
/// the API server's own words.
pub type JobTemplate = AsWritten<JobTemplateSpec>;

/// What to do when the time has come and an earlier Job hasn't ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    /// Both run.
    #[default]
    Allow,
    /// The new one isn't started while the earlier one is there.
    Forbid,
    /// The earlier one is deleted, and the new one started when it is gone.
    Replace,
}

/// What became of it, as last observed. Nothing is run because of what is written here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobStatus {
    /// The Jobs that haven't ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<ObjectReference>,

    /// The time of the schedule for which a Job was last created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,

    /// When a Job last ended successfully.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Time>,

    /// When the schedule says so next; absent while it is suspended or can't be followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<Time>,

    /// The generation of the spec that this status tells about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`: the schedule is followed, or what is in the way. `Missed`: the latest time of the schedule has passed
    /// without its Job, and why. `ShortDeadline`: the deadline is so short that runs may be missed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
