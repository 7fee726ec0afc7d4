//! Which pods have ended, counted once each.
//!
//! A pod that has ended is first noted in the job's status by its UID, then let go by taking its finalizer, and counted
//! when that is seen. Whatever breaks off in between, it is noted or counted, never both and never neither. Completion
//! indexes need no note: a set may take an index twice.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{has_failed, index::Indexes, is_tracked};
use crate::controllers::value::{int, is_deleting, list, text};

/// The index of a pod of an indexed job.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// What has ended.
#[derive(Debug, Default)]
pub(super) struct Tally<'a> {
    /// Succeeded, counted.
    succeeded: i64,
    /// Failed, counted.
    failed: i64,
    /// The indexes that have succeeded, if the job has any.
    pub(super) indexes: Option<Indexes>,
    /// Succeeded, noted.
    pub(super) noted_succeeded: Vec<String>,
    /// Failed, noted.
    pub(super) noted_failed: Vec<String>,
    /// What can be let go when the notes have been written.
    pub(super) counted: Vec<&'a Value>,
}

impl Tally<'_> {
    /// How many have succeeded; of indexed jobs, how many indexes.
    pub(super) fn succeeded(&self) -> i64 {
        match &self.indexes {
            Some(indexes) => count(indexes.0.len()),
            None => self.succeeded + count(self.noted_succeeded.len()),
        }
    }

    /// How many have failed.
    pub(super) fn failed(&self) -> i64 {
        self.failed + count(self.noted_failed.len())
    }

    /// What the status has as `succeeded`: what is noted isn't part of it.
    pub(super) fn counted_succeeded(&self) -> i64 {
        if self.indexes.is_some() { self.succeeded() } else { self.succeeded }
    }

    /// What the status has as `failed`.
    pub(super) fn counted_failed(&self) -> i64 {
        self.failed
    }

    /// Nothing is noted that isn't counted.
    pub(super) fn is_settled(&self) -> bool {
        self.noted_succeeded.is_empty() && self.noted_failed.is_empty() && self.counted.is_empty()
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The index that a pod has.
pub(super) fn index_of(pod: &Value) -> Option<i64> {
    pod["metadata"]["annotations"][INDEX].as_str()?.parse().ok()
}

/// Counts the pods of a job.
pub(super) fn tally<'a>(job: &Value, pods: &[&'a Value]) -> Tally<'a> {
    let completions = int(job, "/spec/completions");
    let mut tally = Tally { failed: int(job, "/status/failed"), ..Tally::default() };
    if text(job, "/spec/completionMode") == "Indexed" {
        tally.indexes = Some(Indexes::parse(text(job, "/status/completedIndexes"), completions));
    } else {
        tally.succeeded = int(job, "/status/succeeded");
    }
    let tracked: BTreeSet<&str> = pods.iter().filter(|pod| is_tracked(pod)).map(|pod| uid(pod)).collect();
    let noted = |field: &str| {
        let uids = list(job, &format!("/status/uncountedTerminatedPods/{field}")).iter().filter_map(Value::as_str);
        uids.map(str::to_owned).partition::<Vec<_>, _>(|uid| tracked.contains(uid.as_str()))
    };
    let (succeeded, let_go) = noted("succeeded");
    tally.noted_succeeded = succeeded;
    tally.succeeded += count(let_go.len());
    let (failed, let_go) = noted("failed");
    tally.noted_failed = failed;
    tally.failed += count(let_go.len());
    for pod in pods.iter().copied().filter(|pod| is_tracked(pod)) {
        take(job, pod, completions, &mut tally);
    }
    tally
}

fn uid(pod: &Value) -> &str {
    text(pod, "/metadata/uid")
}

/// Takes in a pod that hasn't been let go.
fn take<'a>(job: &Value, pod: &'a Value, completions: i64, tally: &mut Tally<'a>) {
    let note = |notes: &mut Vec<String>| {
        if !notes.iter().any(|noted| noted == uid(pod)) {
            notes.push(uid(pod).to_owned());
        }
    };
    let index = index_of(pod).filter(|index| (0..completions).contains(index));
    let had_failed = tally.noted_failed.iter().any(|noted| noted == uid(pod));
    if text(pod, "/status/phase") == "Succeeded" && !had_failed {
        match (&mut tally.indexes, index) {
            (Some(indexes), Some(index)) => drop(indexes.0.insert(index)),
            (Some(_), None) => {}
            (None, _) => note(&mut tally.noted_succeeded),
        }
    } else if has_failed(job, pod) || had_failed {
        if tally.indexes.is_none() || index.is_some() {
            note(&mut tally.noted_failed);
        }
    } else if !is_deleting(job) {
        return;
    }
    tally.counted.push(pod);
}
