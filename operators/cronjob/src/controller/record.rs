//! The record of the last run: the durable memory that keeps a time of the schedule from being run twice.
//!
//! It is kept in an annotation of the CronJob, because status may be wiped and Jobs may be deleted, by history limits,
//! a time to live, or a user. It names the CronJob by uid: a manifest that was exported and applied again makes a new
//! CronJob, which begins anew.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{children::Children, plan};
use crate::api::v1::CronJob;

/// The annotation of a CronJob that holds its [`Record`], as JSON.
pub(crate) const LAST: &str = "batch.tutorial.kubebuilder.io/last-schedule";

/// The annotation of a Job that tells for which time of the schedule it was created, as of RFC 3339.
pub(crate) const SCHEDULED_AT: &str = "batch.tutorial.kubebuilder.io/scheduled-at";

/// The finalizer of a Job that isn't recorded yet.
pub(crate) const UNRECORDED: &str = "batch.tutorial.kubebuilder.io/unrecorded";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    /// The uid of the CronJob.
    cron_job: String,
    /// The time of the schedule.
    time: Time,
}

/// The last time of the schedule that is recorded with this CronJob.
pub(crate) fn recorded(cronjob: &CronJob) -> Option<Timestamp> {
    let record: Record = serde_json::from_str(cronjob.annotations().get(LAST)?).ok()?;
    (Some(&record.cron_job) == cronjob.metadata.uid.as_ref()).then_some(record.time.0)
}

/// The last time of the schedule that a Job was created for, as far as the CronJob and these Jobs of it tell.
///
/// Without a record the status is heard, as a second witness: `kubectl replace` takes annotations away.
pub(crate) fn last(cronjob: &CronJob, jobs: &Children) -> Option<Timestamp> {
    let witnessed = || Some(cronjob.status.as_ref()?.last_schedule_time.as_ref()?.0);
    let last = recorded(cronjob).or_else(witnessed);
    last.into_iter().chain(jobs.all().filter_map(|job| scheduled_at(cronjob, job))).max()
}

/// For which time of the schedule a Job was created, if it was by this operator.
fn scheduled_at(cronjob: &CronJob, job: &Job) -> Option<Timestamp> {
    let time: Timestamp = job.annotations().get(SCHEDULED_AT)?.parse().ok()?;
    (job.metadata.name.as_ref() == Some(&plan::job_name(&cronjob.name_any(), time))).then_some(time)
}

/// Whether the Job waits for its time to be recorded.
pub(crate) fn is_unrecorded(job: &Job) -> bool {
    job.finalizers().iter().any(|finalizer| finalizer == UNRECORDED)
}

/// The merge patch that records this time with this very state of the CronJob: on another it is a conflict, so that no
/// record is ever replaced by an earlier one.
pub(crate) fn patch(cronjob: &CronJob, time: Timestamp) -> Value {
    let record = Record { cron_job: cronjob.uid().unwrap_or_default(), time: Time(time) };
    let annotations = BTreeMap::from([(LAST, serde_json::to_string(&record).unwrap_or_default())]);
    let metadata = &cronjob.metadata;
    json!({"metadata": {
        "uid": metadata.uid, "resourceVersion": metadata.resource_version, "annotations": annotations,
    }})
}
