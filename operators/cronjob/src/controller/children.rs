//! The Jobs of a CronJob, grouped by state.

use std::{cmp::Reverse, sync::Arc};

use k8s_openapi::{
    api::{batch::v1::Job, core::v1::ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Resource, ResourceExt};

use super::job;
use crate::api::v1::CronJob;

/// The Jobs of a CronJob.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children {
    /// Jobs that have not ended, including those that are being deleted.
    pub(crate) active: Vec<Arc<Job>>,
    /// Jobs that have succeeded.
    pub(crate) succeeded: Vec<Arc<Job>>,
    /// Jobs that have failed.
    pub(crate) failed: Vec<Arc<Job>>,
}

impl Children {
    /// Adds a Job by its state.
    pub(crate) fn add(&mut self, job: Arc<Job>) {
        match ended(&job) {
            None => self.active.push(job),
            Some(true) => self.succeeded.push(job),
            Some(false) => self.failed.push(job),
        }
    }

    /// Returns all Jobs.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.active.iter().chain(&self.succeeded).chain(&self.failed)
    }

    /// Returns the references to active Jobs, for the status.
    pub(crate) fn references(&self) -> Vec<ObjectReference> {
        let references = self.active.iter().map(|job| ObjectReference {
            // The version changes whenever a pod is counted, and the status should not change with it.
            resource_version: None,
            ..job.object_ref(&())
        });
        references.collect()
    }

    /// Returns the completion time of the last Job that succeeded.
    pub(crate) fn last_success(&self) -> Option<Time> {
        let times = self.succeeded.iter().filter_map(|job| job.status.as_ref()?.completion_time.clone());
        times.max_by_key(|time| time.0)
    }

    /// Returns the Jobs beyond the history limits, oldest first.
    pub(crate) fn excess(&self, cronjob: &CronJob) -> Vec<Arc<Job>> {
        let spec = &cronjob.spec;
        let excess = |jobs: &[Arc<Job>], limit: Option<i32>| {
            let kept = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
            let mut jobs: Vec<_> = jobs.iter().filter(|job| may_go(job)).cloned().collect();
            jobs.sort_by_key(|job| Reverse(age(job)));
            let mut excess = jobs.split_off(kept.min(jobs.len()));
            excess.reverse();
            excess
        };
        let mut all = excess(&self.failed, spec.failed_jobs_history_limit);
        all.extend(excess(&self.succeeded, spec.successful_jobs_history_limit));
        all
    }
}

impl FromIterator<Arc<Job>> for Children {
    fn from_iter<I: IntoIterator<Item = Arc<Job>>>(jobs: I) -> Self {
        let mut children = Self::default();
        jobs.into_iter().for_each(|job| children.add(job));
        children
    }
}

/// Returns whether a Job has ended, and if so, whether it succeeded.
fn ended(job: &Job) -> Option<bool> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().filter(|condition| condition.status == "True").find_map(|condition| match &*condition.type_ {
        "Complete" => Some(true),
        "Failed" => Some(false),
        _ => None,
    })
}

fn may_go(job: &Job) -> bool {
    job.metadata.deletion_timestamp.is_none() && !job::is_unrecorded(job)
}

/// Returns the sort key of a Job, oldest first. A Job that has never started comes first.
fn age(job: &Job) -> (Option<jiff::Timestamp>, Option<jiff::Timestamp>, String) {
    let started = job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    (started, job.creation_timestamp().map(|time| time.0), job.name_any())
}
