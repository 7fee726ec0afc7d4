//! How it stands with a CronJob, and the Job that it is to have: values in, values out.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::batch::v1::{Job, JobTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, ResourceExt};
use kubewright::owner;
use thiserror::Error;

use super::{
    children::Children,
    record::{SCHEDULED_AT, UNRECORDED},
};
use crate::{
    api::v1::{ConcurrencyPolicy, CronJob},
    schedule::{Schedule, ScheduleError},
};

/// The longest name of a CronJob: with a hyphen and ten digits it must still be a label.
pub(crate) const MAX_NAME: usize = 52;

/// What is wrong with a spec. Only an edit mends it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum SpecError {
    /// The schedule can't be read.
    #[error("{0}")]
    Schedule(#[from] ScheduleError),
    /// The schedule names a date that doesn't exist.
    #[error("no date satisfies the schedule {0:?}")]
    NeverMatches(String),
    /// The template is none.
    #[error("spec.jobTemplate: {0}")]
    Template(String),
    /// The name is too long for the names of Jobs.
    #[error("metadata.name: must be no more than 52 characters")]
    Name,
}

/// How it stands with a CronJob: everything that its conditions tell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Situation {
    /// The spec is wrong.
    Invalid(SpecError),
    /// It is suspended.
    Suspended,
    /// No time of the schedule has passed without its Job.
    Waiting,
    /// The latest time has passed by more than the deadline.
    TooLate { time: Timestamp, deadline: i64 },
    /// The latest time has come, and an earlier Job forbids its Job.
    Forbidden { time: Timestamp, active: Vec<String> },
    /// The latest time has come, and earlier Jobs have to go first.
    Replacing { time: Timestamp, active: Vec<String> },
    /// The latest time has come.
    Due { time: Timestamp, job: Box<Job> },
    /// Another's Job has the name.
    Taken { job: String },
    /// The API server doesn't want the Job.
    Refused { message: String },
}

/// How it stands, and when the schedule says so next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) situation: Situation,
    pub(crate) next: Option<Timestamp>,
}

// ANCHOR: plan
/// How it stands with a CronJob, whose last Job was for the time `last`.
pub(crate) fn plan(cronjob: &CronJob, children: &Children, last: Option<Timestamp>, now: Timestamp) -> Plan {
    let (schedule, template) = match read(cronjob) {
        Ok(read) => read,
        Err(error) => return Plan { situation: Situation::Invalid(error), next: None },
    };
    if cronjob.spec.suspend == Some(true) {
        return Plan { situation: Situation::Suspended, next: None };
    }
    let anchor = last.or_else(|| cronjob.creation_timestamp().map(|time| time.0)).unwrap_or(now);
    // With the clock before the anchor, nothing is run until it has passed it.
    let next = schedule.next(anchor, now.max(anchor));
    let situation = match schedule.latest(anchor, now) {
        None => Situation::Waiting,
        Some(time) => missed(cronjob, children, template, time, now),
    };
    Plan { situation, next }
}
// ANCHOR_END: plan

/// How it stands with the latest time of the schedule, which has no Job.
fn missed(
    cronjob: &CronJob,
    children: &Children,
    template: JobTemplateSpec,
    time: Timestamp,
    now: Timestamp,
) -> Situation {
    if let Some(deadline) = cronjob.spec.starting_deadline_seconds
        && now.as_second() - time.as_second() > deadline
    {
        return Situation::TooLate { time, deadline };
    }
    blocked(cronjob, &children.active, time)
        .unwrap_or_else(|| Situation::Due { time, job: Box::new(job(cronjob, template, time)) })
}

/// What these Jobs, which haven't ended, mean for one more.
pub(crate) fn blocked(cronjob: &CronJob, active: &[Arc<Job>], time: Timestamp) -> Option<Situation> {
    let active: Vec<_> = active.iter().map(|job| job.name_any()).collect();
    match cronjob.spec.concurrency_policy.unwrap_or_default() {
        _ if active.is_empty() => None,
        ConcurrencyPolicy::Allow => None,
        ConcurrencyPolicy::Forbid => Some(Situation::Forbidden { time, active }),
        ConcurrencyPolicy::Replace => Some(Situation::Replacing { time, active }),
    }
}

fn read(cronjob: &CronJob) -> Result<(Schedule, JobTemplateSpec), SpecError> {
    if cronjob.name_any().len() > MAX_NAME {
        return Err(SpecError::Name);
    }
    let spec = &cronjob.spec;
    let schedule = Schedule::parse(&spec.schedule, spec.time_zone.as_deref())?;
    if schedule.never_matches() {
        return Err(SpecError::NeverMatches(spec.schedule.clone()));
    }
    let template = spec.job_template.read().map_err(|error| SpecError::Template(error.to_string()))?;
    Ok((schedule, template))
}

/// Whether the deadline is so short that a busy cluster misses it.
pub(crate) fn has_short_deadline(cronjob: &CronJob) -> bool {
    const LATENCY: SignedDuration = SignedDuration::from_secs(10);
    cronjob.spec.starting_deadline_seconds.is_some_and(|deadline| deadline < LATENCY.as_secs())
}

/// The name of the Job for this time.
pub(crate) fn job_name(cronjob: &str, time: Timestamp) -> String {
    format!("{cronjob}-{}", time.as_second())
}

/// The name of the CronJob whose Job would have this name.
pub(crate) fn cronjob_name(job: &str) -> Option<&str> {
    let (cronjob, time) = job.rsplit_once('-')?;
    (!time.is_empty() && time.bytes().all(|digit| digit.is_ascii_digit())).then_some(cronjob)
}

/// The Job for this time; who controls it is for the caller to add.
///
/// It can't vanish until its time is recorded, because of its finalizer.
fn job(cronjob: &CronJob, template: JobTemplateSpec, time: Timestamp) -> Job {
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

/// The name and uid of the CronJob that controls the Job.
pub(crate) fn cronjob_of(job: &Job) -> Option<(&str, &str)> {
    let controller = owner::controller_of(job)?;
    let ours = controller.kind == CronJob::kind(&()) && controller.api_version == CronJob::api_version(&());
    ours.then_some((controller.name.as_str(), controller.uid.as_str()))
}

/// Whether the CronJob controls the Job: its uid decides.
pub(crate) fn is_own(cronjob: &CronJob, job: &Job) -> bool {
    cronjob_of(job).is_some_and(|(_, uid)| Some(uid) == cronjob.metadata.uid.as_deref())
}

#[cfg(test)]
pub(crate) mod tests;
