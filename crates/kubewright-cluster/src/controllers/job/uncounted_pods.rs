//! Counts of a job's ended pods, each counted exactly once.
//!
//! The UID of an ended pod is first recorded in `status.uncountedTerminatedPods`, then the pod's finalizer is removed,
//! and the pod is counted once its removal has been observed. After an interruption at any point a pod is either
//! recorded or counted, never both and never neither. Completion indexes need no such record, since a set can't contain
//! an index twice.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    has_failed,
    index::Indexes,
    is_tracked,
    policy::{self, Verdict},
};
use crate::controllers::value::{int, is_deleting, list, text};

/// The annotation with the completion index of a pod.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The pods that have ended.
#[derive(Debug, Default)]
pub(super) struct PodCounts<'a> {
    /// The number of counted succeeded pods.
    succeeded: i64,
    /// The number of counted failed pods.
    failed: i64,
    /// The succeeded completion indexes of an indexed job.
    pub(super) indexes: Option<Indexes>,
    /// The failed completion indexes of a job that limits the failures of each.
    pub(super) failed_indexes: Option<Indexes>,
    /// The recorded UIDs of succeeded pods.
    pub(super) noted_succeeded: Vec<String>,
    /// The recorded UIDs of failed pods.
    pub(super) noted_failed: Vec<String>,
    /// The pods whose finalizers can be removed once the UIDs have been written.
    pub(super) counted: Vec<&'a Value>,
}

impl<'a> PodCounts<'a> {
    /// Returns the number of succeeded pods, or of succeeded indexes.
    pub(super) fn succeeded(&self) -> i64 {
        match &self.indexes {
            Some(indexes) => number(indexes.0.len()),
            None => self.succeeded + number(self.noted_succeeded.len()),
        }
    }

    /// Returns the number of failed indexes.
    pub(super) fn failed_indexes(&self) -> i64 {
        self.failed_indexes.as_ref().map_or(0, |indexes| number(indexes.0.len()))
    }

    /// Returns the number of failed pods.
    pub(super) fn failed(&self) -> i64 {
        self.failed + number(self.noted_failed.len())
    }

    /// Returns `status.succeeded`, which doesn't include pods that are only recorded.
    pub(super) fn counted_succeeded(&self) -> i64 {
        if self.indexes.is_some() { self.succeeded() } else { self.succeeded }
    }

    /// Returns `status.failed`, which doesn't include pods that are only recorded.
    pub(super) fn counted_failed(&self) -> i64 {
        self.failed
    }

    /// Releases the remaining pods when the job has ended. They count as failed if the job has failed, though they
    /// still run.
    pub(super) fn end<'b>(&mut self, job: &Value, pods: &[&'b Value], failed: bool)
    where
        'b: 'a,
    {
        let completions = int(job, "/spec/completions");
        let left = pods.iter().copied().filter(|pod| is_tracked(pod));
        for pod in left.filter(|pod| !self.counted.iter().any(|one| std::ptr::eq(*one, *pod))).collect::<Vec<_>>() {
            if failed || has_failed(job, pod) {
                self.fail(job, pod, completions);
            }
            self.counted.push(pod);
        }
    }

    /// Counts a pod that has failed, unless a policy excludes it.
    fn fail(&mut self, job: &Value, pod: &Value, completions: i64) {
        let index = index_of(pod).filter(|index| (0..completions).contains(index));
        let had_failed = self.noted_failed.iter().any(|noted| noted == uid(pod));
        let counts = policy::verdict(job, pod) != Verdict::Ignore && (self.indexes.is_none() || index.is_some());
        if counts && !had_failed {
            self.noted_failed.push(uid(pod).to_owned());
        }
    }

    /// Returns whether all ended pods are counted.
    pub(super) fn is_settled(&self) -> bool {
        self.noted_succeeded.is_empty() && self.noted_failed.is_empty() && self.counted.is_empty()
    }
}

fn number(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the completion index of a pod.
pub(super) fn index_of(pod: &Value) -> Option<i64> {
    pod["metadata"]["annotations"][INDEX].as_str()?.parse().ok()
}

/// Counts the pods of a job.
pub(super) fn count<'a>(job: &Value, pods: &[&'a Value]) -> PodCounts<'a> {
    let completions = int(job, "/spec/completions");
    let mut counts = PodCounts { failed: int(job, "/status/failed"), ..PodCounts::default() };
    if text(job, "/spec/completionMode") == "Indexed" {
        counts.indexes = Some(Indexes::parse(text(job, "/status/completedIndexes"), completions));
    } else {
        counts.succeeded = int(job, "/status/succeeded");
    }
    if policy::limit_per_index(job).is_some() {
        counts.failed_indexes = Some(Indexes::parse(text(job, "/status/failedIndexes"), completions));
    }
    let tracked: BTreeSet<&str> = pods.iter().filter(|pod| is_tracked(pod)).map(|pod| uid(pod)).collect();
    let noted = |field: &str| {
        let uids = list(job, &format!("/status/uncountedTerminatedPods/{field}")).iter().filter_map(Value::as_str);
        uids.map(str::to_owned).partition::<Vec<_>, _>(|uid| tracked.contains(uid.as_str()))
    };
    let (succeeded, let_go) = noted("succeeded");
    counts.noted_succeeded = succeeded;
    counts.succeeded += number(let_go.len());
    let (failed, let_go) = noted("failed");
    counts.noted_failed = failed;
    counts.failed += number(let_go.len());
    for pod in pods.iter().copied().filter(|pod| is_tracked(pod) && !waits_for_replacement(job, pod, pods)) {
        take(job, pod, completions, &mut counts);
    }
    counts
}

/// Returns whether a failed pod stays until the next pod of its index is there, which gets the number of failures from
/// it.
fn waits_for_replacement(job: &Value, pod: &Value, pods: &[&Value]) -> bool {
    let limited = policy::limit_per_index(job).is_some() && !is_deleting(job);
    if !limited || text(pod, "/status/phase") == "Succeeded" || !has_failed(job, pod) || policy::fails_index(job, pod) {
        return false;
    }
    let Some(index) = index_of(pod) else { return false };
    let failures = policy::failures(job, &[pod], index);
    let replaces = |other: &&Value| {
        !std::ptr::eq(*other, pod) && index_of(other) == Some(index) && policy::earlier_failures(other) >= failures
    };
    let noted = list(job, "/status/uncountedTerminatedPods/failed").iter().any(|noted| *noted == uid(pod));
    !noted && !pods.iter().any(replaces)
}

fn uid(pod: &Value) -> &str {
    text(pod, "/metadata/uid")
}

/// Processes a pod that still has its finalizer.
fn take<'a>(job: &Value, pod: &'a Value, completions: i64, counts: &mut PodCounts<'a>) {
    let index = index_of(pod).filter(|index| (0..completions).contains(index));
    let had_failed = counts.noted_failed.iter().any(|noted| noted == uid(pod));
    if text(pod, "/status/phase") == "Succeeded" && !had_failed {
        match (&mut counts.indexes, index) {
            (Some(indexes), Some(index)) => drop(indexes.0.insert(index)),
            (Some(_), None) => {}
            (None, _) if counts.noted_succeeded.iter().any(|noted| noted == uid(pod)) => {}
            (None, _) => counts.noted_succeeded.push(uid(pod).to_owned()),
        }
    } else if has_failed(job, pod) || had_failed {
        if let (Some(failed), Some(index)) = (&mut counts.failed_indexes, index)
            && policy::fails_index(job, pod)
        {
            failed.0.insert(index);
        }
        counts.fail(job, pod, completions);
    } else if !is_deleting(job) {
        return;
    }
    counts.counted.push(pod);
}
