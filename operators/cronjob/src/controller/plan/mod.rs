//! Decides the next step for a CronJob. Pure.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobTemplateSpec};
use kube::ResourceExt;
use thiserror::Error;

use super::{children::Children, job::job};
use crate::{
    api::v1::{ConcurrencyPolicy, CronJob},
    schedule::{Schedule, ScheduleError},
};

/// The maximum length of a CronJob's name: with a hyphen and ten digits, the name of a Job must be a valid label.
pub(crate) const MAX_NAME: usize = 52;

/// An error in a spec that only an edit can fix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum SpecError {
    /// The schedule is invalid.
    #[error("{0}")]
    Schedule(#[from] ScheduleError),
    /// The schedule names a date that doesn't exist.
    #[error("no date satisfies the schedule {0:?}")]
    NeverMatches(String),
    /// The template is malformed.
    #[error("spec.jobTemplate: {0}")]
    Template(String),
    /// The name is too long for the names of Jobs.
    #[error("metadata.name: must be no more than 52 characters")]
    Name,
}

/// The situation of a CronJob, which its conditions describe.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Situation {
    /// The spec is invalid.
    Invalid(SpecError),
    /// It is suspended.
    Suspended,
    /// Every scheduled time in the past has its Job.
    Waiting,
    /// The latest scheduled time passed longer ago than the deadline.
    TooLate { time: Timestamp, deadline: i64 },
    /// The latest scheduled time has come, and an active Job forbids its Job.
    Forbidden { time: Timestamp, active: Vec<String> },
    /// The latest scheduled time has come, and active Jobs have to end first.
    Replacing { time: Timestamp, active: Vec<String> },
    /// The latest scheduled time has come.
    Due { time: Timestamp, job: Box<Job> },
    /// A Job of another owner has the name.
    Taken { job: String },
    /// The API server refuses the Job.
    Refused { message: String },
}

/// The situation of a CronJob and its next scheduled time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) situation: Situation,
    pub(crate) next: Option<Timestamp>,
}

// ANCHOR: plan
/// Returns the plan for a CronJob whose last Job was for the time `last`.
pub(crate) fn plan(cronjob: &CronJob, children: &Children, last: Option<Timestamp>, now: Timestamp) -> Plan {
    let (schedule, template) = match read(cronjob) {
        Ok(read) => read,
        Err(error) => return Plan { situation: Situation::Invalid(error), next: None },
    };
    if cronjob.spec.suspend == Some(true) {
        return Plan { situation: Situation::Suspended, next: None };
    }
    let anchor = last.or_else(|| cronjob.creation_timestamp().map(|time| time.0)).unwrap_or(now);
    // If the clock is before the anchor, nothing runs until the clock has passed it.
    let next = schedule.next(anchor, now.max(anchor));
    let situation = match schedule.latest(anchor, now) {
        None => Situation::Waiting,
        Some(time) => missed(cronjob, children, template, time, now),
    };
    Plan { situation, next }
}
// ANCHOR_END: plan

/// Returns the situation of the latest scheduled time, given that it has no Job.
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

/// Returns the situation in which active Jobs prevent a new one, if any.
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

/// Returns whether the deadline is so short that a busy cluster may miss it.
pub(crate) fn has_short_deadline(cronjob: &CronJob) -> bool {
    const LATENCY: SignedDuration = SignedDuration::from_secs(10);
    cronjob.spec.starting_deadline_seconds.is_some_and(|deadline| deadline < LATENCY.as_secs())
}

#[cfg(test)]
pub(crate) mod tests;
