//! The record of the last scheduled time that was run, which prevents a second run of the same time.
//!
//! The record is an annotation of the CronJob, because the status may be wiped, and Jobs may be deleted by history
//! limits, a TTL or a user. It contains the UID of the CronJob, so that an exported manifest that is applied again
//! starts without a record.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{children::Children, job::scheduled_at};
use crate::api::v1::CronJob;

/// The annotation of a CronJob with its [`Record`] as JSON.
pub(crate) const LAST: &str = "batch.tutorial.kubebuilder.io/last-schedule";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    /// The UID of the CronJob.
    cron_job: String,
    /// The scheduled time.
    time: Time,
}

/// Returns the recorded time of a CronJob.
pub(crate) fn recorded(cronjob: &CronJob) -> Option<Timestamp> {
    let record: Record = serde_json::from_str(cronjob.annotations().get(LAST)?).ok()?;
    (Some(&record.cron_job) == cronjob.metadata.uid.as_ref()).then_some(record.time.0)
}

/// Returns the last scheduled time that has a Job, according to the CronJob and these Jobs.
///
/// Without a record the status is used instead, since `kubectl replace` removes annotations.
pub(crate) fn last(cronjob: &CronJob, jobs: &Children) -> Option<Timestamp> {
    let witnessed = || Some(cronjob.status.as_ref()?.last_schedule_time.as_ref()?.0);
    let last = recorded(cronjob).or_else(witnessed);
    last.into_iter().chain(jobs.all().filter_map(|job| scheduled_at(cronjob, job))).max()
}

/// Returns the merge patch that records a time. It has the CronJob's version as a precondition, so that a record is
/// never replaced by an earlier one.
pub(crate) fn patch(cronjob: &CronJob, time: Timestamp) -> Value {
    let record = Record { cron_job: cronjob.uid().unwrap_or_default(), time: Time(time) };
    let annotations = BTreeMap::from([(LAST, serde_json::to_string(&record).unwrap_or_default())]);
    let metadata = &cronjob.metadata;
    json!({"metadata": {
        "uid": metadata.uid, "resourceVersion": metadata.resource_version, "annotations": annotations,
    }})
}
