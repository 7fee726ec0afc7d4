//! The Job of a scheduled time: its name, its annotation, its finalizer and its owner.

use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::{Job, JobTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, ResourceExt};
use kubewright::owner;

use crate::api::v1::CronJob;

/// The annotation of a Job with its scheduled time in RFC 3339 format.
pub(crate) const SCHEDULED_AT: &str = "batch.tutorial.kubebuilder.io/scheduled-at";

/// The finalizer of a Job whose time is not recorded yet.
pub(crate) const UNRECORDED: &str = "batch.tutorial.kubebuilder.io/unrecorded";

/// Returns the name of the Job for a time.
pub(crate) fn job_name(cronjob: &str, time: Timestamp) -> String {
    format!("{cronjob}-{}", time.as_second())
}

/// Returns the name of the CronJob whose Job would have this name.
pub(crate) fn cronjob_name(job: &str) -> Option<&str> {
    let (cronjob, time) = job.rsplit_once('-')?;
    (!time.is_empty() && time.bytes().all(|digit| digit.is_ascii_digit())).then_some(cronjob)
}

/// Returns the Job for a time, without an owner reference.
///
/// The finalizer keeps the Job until its time is recorded.
pub(crate) fn job(cronjob: &CronJob, template: JobTemplateSpec, time: Timestamp) -> Job {
    let metadata = template.metadata.unwrap_or_default();
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED_AT.into(), time.to_string());
    Job {
        metadata: ObjectMeta {
            name: Some(job_name(&cronjob.name_any(), time)),
            namespace: cronjob.namespace(),
            labels: metadata.labels,
            annotations: Some(annotations),
            finalizers: Some(vec![UNRECORDED.into()]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// Returns the name and UID of the CronJob that controls a Job.
pub(crate) fn cronjob_of(job: &Job) -> Option<(&str, &str)> {
    let controller = owner::controller_of(job)?;
    let ours = controller.kind == CronJob::kind(&()) && controller.api_version == CronJob::api_version(&());
    ours.then_some((controller.name.as_str(), controller.uid.as_str()))
}

/// Returns whether the CronJob controls a Job, compared by UID.
pub(crate) fn is_own(cronjob: &CronJob, job: &Job) -> bool {
    cronjob_of(job).is_some_and(|(_, uid)| Some(uid) == cronjob.metadata.uid.as_deref())
}

/// Returns the scheduled time of a Job, if this operator created it.
pub(crate) fn scheduled_at(cronjob: &CronJob, job: &Job) -> Option<Timestamp> {
    let time: Timestamp = job.annotations().get(SCHEDULED_AT)?.parse().ok()?;
    (job.metadata.name.as_ref() == Some(&job_name(&cronjob.name_any(), time))).then_some(time)
}

/// Returns whether the Job's time is not recorded yet.
pub(crate) fn is_unrecorded(job: &Job) -> bool {
    job.finalizers().iter().any(|finalizer| finalizer == UNRECORDED)
}
