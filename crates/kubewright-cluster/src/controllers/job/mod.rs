//! Jobs.
//!
//! * [`uncounted_pods`]: the counts of succeeded and failed pods, each exactly once
//! * [`ended`]: the pods by which the replacement of failed ones is delayed
//! * [`index`]: sets of completion indexes
//! * [`manage`]: the creation and deletion of pods
//! * [`policy`]: failure policies, success policies, and limits per index
//! * [`status`]: counts and conditions

mod ended;
mod index;
mod manage;
mod policy;
mod status;
#[cfg(test)]
mod tests;
mod uncounted_pods;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::{ended::EndedPods, uncounted_pods::PodCounts};
use super::{
    controller_refs::ControllerRefs,
    kind::Kind,
    objects::Objects,
    pod::{has_ended, is_active},
    reconcile::{Controller, Deletion, Key, Plan, Step},
    retry::Backoff,
    value::{condition, controller_of, flag, holds, int, is_deleting, list, number, text, time},
};

/// The kind `Job`.
pub(crate) const JOB: Kind = Kind { group: "batch", kind: "Job", plural: "jobs" };

/// The finalizer of a pod that the job controller hasn't counted yet.
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The value of `managedBy` for this controller.
const MANAGER: &str = "kubernetes.io/job-controller";

/// The job controller. The key without a name stands for the orphaned pods of a namespace.
#[derive(Debug)]
pub(crate) struct Jobs {
    refs: ControllerRefs,
    /// The pods with the finalizer that have no controller.
    orphans: BTreeSet<Key>,
    /// The pods of each job that have ended, by the UID of the job.
    ended: Mutex<BTreeMap<String, EndedPods>>,
}

impl Jobs {
    /// Creates the controller. `pods` include each pod before its change is taken.
    pub(crate) fn new(pods: Objects) -> Self {
        let refs = ControllerRefs::of_pods(JOB, pods).finalizer(FINALIZER);
        Self { refs, orphans: BTreeSet::new(), ended: Mutex::default() }
    }

    /// Processes a change of a pod. Returns whether it is an orphan with the finalizer.
    fn take_pod(&mut self, pod: &Value, gone: bool) -> bool {
        let Some(key) = Key::of(pod) else { return false };
        let is_orphan = !gone && is_tracked(pod) && controller_of(pod).is_none();
        if is_orphan {
            self.orphans.insert(key);
        } else {
            self.orphans.remove(&key);
        }
        is_orphan
    }

    fn orphans(&self, namespace: &str) -> impl Iterator<Item = &Key> {
        self.orphans.range(Key::first_of(namespace)..).take_while(move |key| key.namespace == namespace)
    }

    /// Removes the finalizer of orphaned pods, such as those of a job that was deleted without them, unless a job
    /// adopts them.
    fn release_orphans(&self, namespace: &str) -> Plan {
        let orphans = self.orphans(namespace).filter_map(|key| self.refs.child(key));
        let orphans = orphans.filter(|pod| is_deleting(pod) || self.refs.selected_by(namespace, pod).next().is_none());
        Plan { steps: orphans.map(|pod| release(&pod)).collect(), ..Plan::default() }
    }
}

impl Controller for Jobs {
    fn reset(&mut self) {
        self.refs.reset();
        self.orphans.clear();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        let mut keys = self.refs.take(change);
        let object = change.object();
        let namespace = text(object, "/metadata/namespace");
        if JOB.is_of(change) && change.kind == ChangeKind::Deleted {
            self.ended.lock().remove(text(object, "/metadata/uid"));
        }
        let concerns_orphans = if Kind::POD.is_of(change) {
            self.take_pod(object, change.kind == ChangeKind::Deleted)
        } else {
            JOB.is_of(change) && self.orphans(namespace).next().is_some()
        };
        if concerns_orphans {
            keys.push(Key::first_of(namespace));
        }
        keys
    }

    fn backoff(&self) -> Backoff {
        Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        if key.name.is_empty() {
            return self.release_orphans(&key.namespace);
        }
        let job = self.refs.parent(key);
        let uid = job.map_or(&Value::Null, |job| &job["metadata"]["uid"]);
        let mut plan = job.map_or_else(Plan::default, |job| Plan::of(&JOB, job));
        let strangers = self.refs.named(key).filter(|pod| controller_of(pod).is_none_or(|owner| owner["uid"] != *uid));
        plan.steps.extend(strangers.filter(|pod| is_tracked(pod)).map(|pod| release(&pod)));
        if let Some(job) = job
            && matches!(text(job, "/spec/managedBy"), "" | MANAGER)
        {
            let claim = self.refs.claim(key, job);
            if !is_finished(job) {
                plan.steps.extend(claim.steps);
            }
            let mut ended = self.ended.lock();
            let ended = ended.entry(text(job, "/metadata/uid").into()).or_default();
            decide(job, &claim.children, ended, now, &mut plan);
        }
        plan
    }
}

/// Returns whether a job has succeeded or failed, after which it neither adopts nor releases pods.
fn is_finished(job: &Value) -> bool {
    holds(job, "Complete") || holds(job, "Failed")
}

/// Returns whether a pod waits to be counted.
fn is_tracked(pod: &Value) -> bool {
    list(pod, "/metadata/finalizers").iter().any(|name| name == FINALIZER)
}

/// Removes the finalizer of a pod.
fn release(pod: &Value) -> Step {
    let others: Vec<_> = list(pod, "/metadata/finalizers").iter().filter(|name| *name != FINALIZER).collect();
    Step::change(&Kind::POD, pod, json!({"metadata": {"finalizers": others}}))
}

/// Returns whether a pod has failed. A pod that is being deleted counts as failed at once, unless
/// `podReplacementPolicy` is `Failed`.
fn has_failed(job: &Value, pod: &Value) -> bool {
    let phase = text(pod, "/status/phase");
    let waits = text(job, "/spec/podReplacementPolicy") == "Failed";
    phase == "Failed" || is_deleting(pod) && phase != "Succeeded" && !waits
}

/// The progress of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    /// It is not finished.
    Open,
    /// It has succeeded, with a reason and a message.
    Succeeded(String, String),
    /// It has failed, with a reason and a message.
    Failed(String, String),
}

/// A job with its pods and their counts.
struct View<'a> {
    job: &'a Value,
    active: Vec<&'a Value>,
    pods: Vec<&'a Value>,
    counts: PodCounts<'a>,
    ended: &'a EndedPods,
    now: Timestamp,
}

impl View<'_> {
    fn is_indexed(&self) -> bool {
        text(self.job, "/spec/completionMode") == "Indexed"
    }

    fn is_suspended(&self) -> bool {
        flag(self.job, "/spec/suspend")
    }

    /// Returns the number of pods that are being deleted and have not ended.
    fn terminating(&self) -> usize {
        self.pods.iter().filter(|pod| is_deleting(pod) && !has_ended(pod)).count()
    }
}

/// Decides the next steps for a job.
fn decide(job: &Value, pods: &[Arc<Value>], ended: &mut EndedPods, now: Timestamp, plan: &mut Plan) {
    let pods: Vec<&Value> = pods.iter().map(|pod| &**pod).collect();
    if is_finished(job) {
        plan.steps.extend(pods.iter().filter(|pod| is_tracked(pod)).map(|pod| release(pod)));
        return expire(job, now, plan);
    }
    let active = pods.iter().copied().filter(|pod| is_active(pod)).collect();
    let counts = uncounted_pods::count(job, &pods);
    ended.note(job, &pods, now);
    let mut view = View { job, active, pods, counts, ended, now };
    let progress = progress(&view, plan);
    match &progress {
        Progress::Open => {}
        // The pods that are left have neither succeeded nor failed: the job doesn't need them any more.
        Progress::Succeeded(..) => view.counts.end(job, &view.pods, false),
        Progress::Failed(..) => view.counts.end(job, &view.pods, true),
    }
    let next = manage::manage(&view, &progress, plan);
    let status = status::status(&view, &progress, plan);
    plan.steps.extend(Step::status(&JOB, job, status));
    plan.steps.extend(view.counts.counted.iter().map(|pod| release(pod)));
    plan.steps.extend(next);
}

/// Deletes a finished job when its `ttlSecondsAfterFinished` have passed.
fn expire(job: &Value, now: Timestamp, plan: &mut Plan) {
    let ended = ["Complete", "Failed"].iter().filter(|kind| holds(job, kind)).find_map(|kind| condition(job, kind));
    let ended = ended.and_then(|condition| time(condition, "/lastTransitionTime"));
    let (Some(seconds), Some(ended), false) = (number(job, "/spec/ttlSecondsAfterFinished"), ended, is_deleting(job))
    else {
        return;
    };
    match seconds_left(ended, seconds, now) {
        None => plan.steps.push(Step::delete_as(&JOB, job, Deletion::Foreground)),
        Some(left) => plan.requeue_after(left),
    }
}

/// Returns the time until `seconds` after `start`; `None` if that has passed.
fn seconds_left(start: Timestamp, seconds: i64, now: Timestamp) -> Option<Duration> {
    let left = seconds - now.duration_since(start).as_secs();
    u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_secs)
}

/// Returns the progress of a job. Completion and failure are final.
fn progress(view: &View<'_>, plan: &mut Plan) -> Progress {
    let job = view.job;
    if let Some(target) = condition(job, "FailureTarget").filter(|_| holds(job, "FailureTarget")) {
        return Progress::Failed(text(target, "/reason").into(), text(target, "/message").into());
    }
    if let Some(met) = condition(job, "SuccessCriteriaMet").filter(|_| holds(job, "SuccessCriteriaMet")) {
        return Progress::Succeeded(text(met, "/reason").into(), text(met, "/message").into());
    }
    if let Some(message) = policy::failed_job(job, &view.pods) {
        return Progress::Failed("PodFailurePolicy".into(), message);
    }
    let rule = view.counts.indexes.as_ref().and_then(|succeeded| policy::success_rule(job, succeeded));
    if let Some(rule) = rule {
        return Progress::Succeeded("SuccessPolicy".into(), format!("Matched rules at index {rule}"));
    }
    let limit = int(job, "/spec/backoffLimit");
    if view.counts.failed() > limit || manage::restarts_exceed(view, limit) {
        return Progress::Failed("BackoffLimitExceeded".into(), "Job has reached the specified backoff limit".into());
    }
    let failed_indexes = view.counts.failed_indexes();
    if number(job, "/spec/maxFailedIndexes").is_some_and(|limit| failed_indexes > limit) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Progress::Failed("MaxFailedIndexesExceeded".into(), message.into());
    }
    let deadline = number(job, "/spec/activeDeadlineSeconds").filter(|_| !view.is_suspended());
    if let (Some(seconds), Some(start)) = (deadline, time(job, "/status/startTime")) {
        match seconds_left(start, seconds, view.now) {
            None => {
                let message = "Job was active longer than specified deadline";
                return Progress::Failed("DeadlineExceeded".into(), message.into());
            }
            Some(left) => plan.requeue_after(left),
        }
    } else if let Some(seconds) = deadline.and_then(|seconds| u64::try_from(seconds).ok()) {
        // The job starts now.
        plan.requeue_after(Duration::from_secs(seconds));
    }
    let succeeded = view.counts.succeeded();
    let enough = number(job, "/spec/completions").map_or(succeeded > 0, |wanted| succeeded + failed_indexes >= wanted);
    if !enough || !view.active.is_empty() || view.is_suspended() {
        Progress::Open
    } else if failed_indexes > 0 {
        Progress::Failed("FailedIndexes".into(), "Job has failed indexes".into())
    } else {
        let message = "Reached expected number of succeeded pods";
        Progress::Succeeded("CompletionsReached".into(), message.into())
    }
}
