//! Jobs: pods that are to end, and the count of those that have.
//!
//! * [`tally`]: how many pods have succeeded and failed, none forgotten and none counted twice
//! * [`index`]: sets of completion indexes
//! * [`manage`]: which pods to make and which to delete
//! * [`status`]: counters and conditions
//!
//! Not there: pod failure policies, success policies, and back-off limits for each index.

mod index;
mod manage;
mod status;
mod tally;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kubewright_apiserver::Change;
use serde_json::{Value, json};

use self::tally::Tally;
use super::{
    family::{Family, Kind},
    pod::{has_ended, is_active},
    reconcile::{Controller, Key, Plan, Step},
    value::{condition, controller_of, flag, holds, int, is_deleting, list, number, text, time},
};

/// The kind.
pub(crate) const JOB: Kind = Kind { group: "batch", kind: "Job", plural: "jobs" };

/// Keeps a pod from going before its job has counted it.
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Whom a job names that is this controller's.
const MANAGER: &str = "kubernetes.io/job-controller";

/// Keeps jobs.
#[derive(Debug)]
pub(crate) struct Jobs(Family);

impl Default for Jobs {
    fn default() -> Self {
        Self(Family::new(JOB, Kind::POD))
    }
}

impl Controller for Jobs {
    fn reset(&mut self) {
        self.0.reset();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        self.0.take(change)
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let job = self.0.parent(key);
        let uid = job.map_or(&Value::Null, |job| &job["metadata"]["uid"]);
        let mut plan = job.map_or_else(Plan::default, |job| Plan::of(&JOB, job));
        let strangers = self.0.named(key).filter(|pod| controller_of(pod).is_none_or(|owner| owner["uid"] != *uid));
        plan.steps.extend(strangers.filter(|pod| is_tracked(pod)).map(|pod| release(pod)));
        if let Some(job) = job
            && matches!(text(job, "/spec/managedBy"), "" | MANAGER)
        {
            let claim = self.0.claim(key, job);
            plan.steps.extend(claim.steps);
            decide(job, &claim.children, now, &mut plan);
        }
        plan
    }
}

/// The pod waits for its job's count.
fn is_tracked(pod: &Value) -> bool {
    list(pod, "/metadata/finalizers").iter().any(|name| name == FINALIZER)
}

/// Lets a pod go.
fn release(pod: &Value) -> Step {
    let others: Vec<_> = list(pod, "/metadata/finalizers").iter().filter(|name| *name != FINALIZER).collect();
    Step::change(&Kind::POD, pod, json!({"metadata": {"finalizers": others}}))
}

/// The pod won't succeed. One that is being deleted counts as failed at once, unless only failed pods are replaced.
fn has_failed(job: &Value, pod: &Value) -> bool {
    let phase = text(pod, "/status/phase");
    let waits = text(job, "/spec/podReplacementPolicy") == "Failed";
    phase == "Failed" || is_deleting(pod) && phase != "Succeeded" && !waits
}

/// What has become of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// It goes on.
    Open,
    /// All that was wanted has succeeded.
    Succeeded,
    /// It won't, for a reason and with a message.
    Failed(String, String),
}

/// A job, its pods, and what follows from them.
struct View<'a> {
    job: &'a Value,
    active: Vec<&'a Value>,
    pods: Vec<&'a Value>,
    tally: Tally<'a>,
    now: Timestamp,
}

impl View<'_> {
    fn is_indexed(&self) -> bool {
        text(self.job, "/spec/completionMode") == "Indexed"
    }

    fn is_suspended(&self) -> bool {
        flag(self.job, "/spec/suspend")
    }

    /// Pods that have been asked to end and have not.
    fn terminating(&self) -> usize {
        self.pods.iter().filter(|pod| is_deleting(pod) && !has_ended(pod)).count()
    }
}

/// What a job needs.
fn decide(job: &Value, pods: &[Arc<Value>], now: Timestamp, plan: &mut Plan) {
    let pods: Vec<&Value> = pods.iter().map(|pod| &**pod).collect();
    if holds(job, "Complete") || holds(job, "Failed") {
        plan.steps.extend(pods.iter().filter(|pod| is_tracked(pod)).map(|pod| release(pod)));
        return expire(job, now, plan);
    }
    let active = pods.iter().copied().filter(|pod| is_active(pod)).collect();
    let tally = tally::tally(job, &pods);
    let view = View { job, active, pods, tally, now };
    let verdict = verdict(&view, plan);
    let next = manage::manage(&view, &verdict, plan);
    let status = status::status(&view, &verdict, plan);
    plan.steps.extend(Step::status(&JOB, job, status));
    plan.steps.extend(view.tally.counted.iter().map(|pod| release(pod)));
    plan.steps.extend(next);
}

/// Deletes a job that has ended, when its time has come.
fn expire(job: &Value, now: Timestamp, plan: &mut Plan) {
    let ended = ["Complete", "Failed"].iter().filter(|kind| holds(job, kind)).find_map(|kind| condition(job, kind));
    let ended = ended.and_then(|condition| time(condition, "/lastTransitionTime"));
    let (Some(seconds), Some(ended), false) = (number(job, "/spec/ttlSecondsAfterFinished"), ended, is_deleting(job))
    else {
        return;
    };
    match seconds_left(ended, seconds, now) {
        None => plan.steps.push(Step::delete(&JOB, job)),
        Some(left) => plan.again_in(left),
    }
}

/// How long it is until `seconds` after `start`; nothing if that has passed.
fn seconds_left(start: Timestamp, seconds: i64, now: Timestamp) -> Option<Duration> {
    let left = seconds - now.duration_since(start).as_secs();
    u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_secs)
}

/// Whether the job is over. What has once been found stays.
fn verdict(view: &View<'_>, plan: &mut Plan) -> Verdict {
    let job = view.job;
    if let Some(target) = condition(job, "FailureTarget").filter(|_| holds(job, "FailureTarget")) {
        return Verdict::Failed(text(target, "/reason").into(), text(target, "/message").into());
    }
    if holds(job, "SuccessCriteriaMet") {
        return Verdict::Succeeded;
    }
    let limit = int(job, "/spec/backoffLimit");
    if view.tally.failed() > limit || manage::restarts_exceed(view, limit) {
        return Verdict::Failed("BackoffLimitExceeded".into(), "Job has reached the specified backoff limit".into());
    }
    let deadline = number(job, "/spec/activeDeadlineSeconds").filter(|_| !view.is_suspended());
    if let (Some(seconds), Some(start)) = (deadline, time(job, "/status/startTime")) {
        match seconds_left(start, seconds, view.now) {
            None => {
                let message = "Job was active longer than specified deadline";
                return Verdict::Failed("DeadlineExceeded".into(), message.into());
            }
            Some(left) => plan.again_in(left),
        }
    } else if let Some(seconds) = deadline.and_then(|seconds| u64::try_from(seconds).ok()) {
        // It starts now.
        plan.again_in(Duration::from_secs(seconds));
    }
    let succeeded = view.tally.succeeded();
    let enough = number(job, "/spec/completions").map_or(succeeded > 0, |wanted| succeeded >= wanted);
    if enough && view.active.is_empty() && !view.is_suspended() { Verdict::Succeeded } else { Verdict::Open }
}
