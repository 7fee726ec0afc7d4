//! The kind `CronJob`.

use k8s_openapi::{
    api::{batch::v1::JobTemplateSpec, core::v1::ObjectReference},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use kubewright::schema::AsWritten;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schedule and the Job to create.
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
    /// The schedule in cron format with five fields (minute, hour, day of month, month, day of week) such as `*/5 * * *
    /// *`, or one of `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly` and `@every 1h30m`, optionally preceded by a
    /// time zone such as `CRON_TZ=Europe/Berlin`.
    #[schemars(length(min = 0))]
    pub schedule: String,

    /// The time zone of the schedule, such as `Europe/Berlin`. Defaults to UTC. A schedule that starts with `TZ=` or
    /// `CRON_TZ=` has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,

    /// The deadline in seconds for starting a Job that missed its scheduled time, for example because the operator was
    /// down. Without it there is no deadline. With less than 10, runs may be missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,

    /// How to treat a Job that is due while an earlier one has not ended. `Allow`, the default, runs both. `Forbid`
    /// delays the new one until the earlier one has ended, and skips it when it is too late or the next time has come.
    /// `Replace` deletes the earlier one, and creates the new one when that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_policy: Option<ConcurrencyPolicy>,

    /// Whether to create no further Jobs. Running Jobs are not affected. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// The template of the Jobs: a `batch/v1` JobTemplateSpec.
    pub job_template: JobTemplate,

    /// The number of succeeded Jobs to keep. Without it all are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub successful_jobs_history_limit: Option<i32>,

    /// The number of failed Jobs to keep. Without it all are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed_jobs_history_limit: Option<i32>,
}
// ANCHOR_END: spec

/// A `batch/v1` JobTemplateSpec as it was written. A malformed template, or one that the API server refuses, is
/// reported in a condition.
pub type JobTemplate = AsWritten<JobTemplateSpec>;

/// How to treat a Job that is due while an earlier one has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    /// Run both.
    #[default]
    Allow,
    /// Don't create the new Job while the earlier one exists.
    Forbid,
    /// Delete the earlier Job, and create the new one when it is gone.
    Replace,
}

/// The last observed state. Nothing runs because of what is written here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobStatus {
    /// The Jobs that have not ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<ObjectReference>,

    /// The last scheduled time for which a Job was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,

    /// The last time at which a Job completed successfully.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Time>,

    /// The next scheduled time; absent while the CronJob is suspended or its schedule is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<Time>,

    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`: whether the schedule is followed, and why not. `Missed`: whether the latest scheduled time has passed
    /// without a Job, and why. `ShortDeadline`: whether the deadline is so short that runs may be missed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
