//! The counts and conditions of a job.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Progress, View};
use crate::controllers::{
    pod::is_ready,
    reconcile::Plan,
    value::{list, stamp, text},
};

/// Returns the status of a job, and adds events about its changes to the plan.
pub(super) fn status(view: &View<'_>, progress: &Progress, plan: &mut Plan) -> Value {
    let before = &view.job["status"];
    let mut conditions = Conditions { list: list(view.job, "/status/conditions").to_vec(), now: view.now };
    let mut status = Map::new();
    let mut start = before.get("startTime").filter(|start| !start.is_null()).cloned();
    if start.is_none() && !view.is_suspended() {
        start = Some(stamp(view.now));
    }
    if *progress == Progress::Open && suspend(view, &mut conditions, plan) {
        start = Some(stamp(view.now));
    }
    // A suspended job has no start time.
    let start = start.filter(|_| conditions.status("Suspended") != "True");
    status.extend(start.map(|start| ("startTime".into(), start)));
    counters(view, &mut status);
    let quiet = view.counts.is_settled() && view.active.is_empty() && view.terminating() == 0;
    match progress {
        Progress::Open => {}
        Progress::Succeeded(reason, message) => {
            conditions.set("SuccessCriteriaMet", "True", reason, message);
            if quiet {
                conditions.set("Complete", "True", reason, message);
                status.insert("completionTime".into(), stamp(view.now));
                plan.event(false, "Completed", "Job completed".into());
            }
        }
        Progress::Failed(reason, message) => {
            conditions.set("FailureTarget", "True", reason, message);
            if quiet {
                conditions.set("Failed", "True", reason, message);
                plan.event(true, event_reason(reason), message.clone());
            }
        }
    }
    if !conditions.list.is_empty() {
        status.insert("conditions".into(), conditions.list.into());
    }
    status.into()
}

fn event_reason(reason: &str) -> &'static str {
    match reason {
        "DeadlineExceeded" => "DeadlineExceeded",
        "FailedIndexes" => "FailedIndexes",
        "MaxFailedIndexesExceeded" => "MaxFailedIndexesExceeded",
        "PodFailurePolicy" => "PodFailurePolicy",
        _ => "BackoffLimitExceeded",
    }
}

/// Sets the condition `Suspended`. Returns true when the job is resumed, which resets its start time.
fn suspend(view: &View<'_>, conditions: &mut Conditions, plan: &mut Plan) -> bool {
    let (was, is) = (conditions.status("Suspended"), view.is_suspended());
    if is && was != "True" {
        conditions.set("Suspended", "True", "JobSuspended", "Job suspended");
        plan.event(false, "Suspended", "Job suspended".into());
    } else if !is && was == "True" {
        conditions.set("Suspended", "False", "JobResumed", "Job resumed");
        plan.event(false, "Resumed", "Job resumed".into());
        return true;
    }
    false
}

fn counters(view: &View<'_>, status: &mut Map<String, Value>) {
    let counts = &view.counts;
    let active = i64::try_from(view.active.len()).unwrap_or(i64::MAX);
    let totals = [("active", active), ("succeeded", counts.counted_succeeded()), ("failed", counts.counted_failed())];
    // Zeros of these are omitted, unlike those of the two fields below.
    status
        .extend(totals.into_iter().filter(|(_, count)| *count != 0).map(|(field, count)| (field.into(), count.into())));
    status.insert("ready".into(), view.active.iter().filter(|pod| is_ready(pod)).count().into());
    status.insert("terminating".into(), view.terminating().into());
    if let Some(indexes) = counts.indexes.as_ref().filter(|indexes| !indexes.0.is_empty()) {
        status.insert("completedIndexes".into(), indexes.to_string().into());
    }
    if let Some(indexes) = &counts.failed_indexes {
        status.insert("failedIndexes".into(), indexes.to_string().into());
    }
    let mut uncounted = json!({});
    for (field, uids) in [("succeeded", &counts.noted_succeeded), ("failed", &counts.noted_failed)] {
        if !uids.is_empty() {
            uncounted[field] = json!(uids);
        }
    }
    for field in ["succeeded", "failed"] {
        // A merge patch leaves fields that it doesn't contain unchanged.
        if uncounted.get(field).is_none() && !view.job["status"]["uncountedTerminatedPods"][field].is_null() {
            uncounted[field] = Value::Null;
        }
    }
    status.insert("uncountedTerminatedPods".into(), uncounted);
}

struct Conditions {
    list: Vec<Value>,
    now: Timestamp,
}

impl Conditions {
    fn status(&self, kind: &str) -> &str {
        self.list.iter().find(|one| one["type"] == kind).map(|one| text(one, "/status")).unwrap_or_default()
    }

    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        if self.status(kind) == status {
            return;
        }
        let now = stamp(self.now);
        self.list.retain(|one| one["type"] != kind);
        self.list.push(json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastProbeTime": now, "lastTransitionTime": now,
        }));
    }
}
