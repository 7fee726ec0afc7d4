//! Creation and deletion of a job's pods.

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    FINALIZER, JOB, Progress, View, has_failed, is_tracked,
    policy::{self, FAILURES},
    release, seconds_left,
    uncounted_pods::{INDEX, index_of},
};
use crate::controllers::{
    pod::{from_template, is_ready, ready_since},
    reconcile::{Plan, Step},
    value::{int, is_deleting, list, number, text, time},
};

/// The delay in seconds before a pod is replaced after the first failure. It doubles with each further failure.
const FIRST_DELAY: i64 = 10;
/// The maximum of that delay.
const LONGEST_DELAY: i64 = 600;
/// The maximum number of pods that one plan creates.
const BURST: usize = 500;

/// Returns the steps towards the wanted number of pods.
pub(super) fn manage(view: &View<'_>, progress: &Progress, plan: &mut Plan) -> Vec<Step> {
    if is_deleting(view.job) {
        return Vec::new();
    }
    if *progress != Progress::Open {
        let all: Vec<_> = view.active.iter().map(|pod| named(pod)).collect();
        return if all.is_empty() { Vec::new() } else { vec![Step::DeletePods(all)] };
    }
    let active = view.active.len();
    let wanted = if view.is_suspended() { 0 } else { wanted(view) };
    let pods = by_need(view);
    let surplus = active.saturating_sub(wanted).max(pods.iter().filter(|(needed, _)| !needed).count());
    if surplus > 0 {
        return remove(pods, surplus);
    }
    let waits = text(view.job, "/spec/podReplacementPolicy") == "Failed";
    let present = active + if waits { view.terminating() } else { 0 };
    if present >= wanted {
        return Vec::new();
    }
    let per_index = policy::limit_per_index(view.job).is_some();
    if !per_index && let Some(delay) = delay(view, &view.pods, view.ended.iter()) {
        plan.requeue_after(delay);
        return Vec::new();
    }
    let pods = new_pods(view, (wanted - present).min(BURST), waits, plan);
    if pods.is_empty() { Vec::new() } else { vec![Step::CreatePods(pods)] }
}

fn named(pod: &Value) -> (String, String) {
    (text(pod, "/metadata/name").into(), text(pod, "/metadata/uid").into())
}

/// Returns the number of pods that should be active. If `completions` is not set, the first success stops the creation
/// of pods.
fn wanted(view: &View<'_>) -> usize {
    let (parallel, succeeded) = (int(view.job, "/spec/parallelism"), view.counts.succeeded());
    match number(view.job, "/spec/completions") {
        Some(completions) => {
            usize::try_from((completions - succeeded - view.counts.failed_indexes()).min(parallel)).unwrap_or_default()
        }
        None if succeeded > 0 => view.active.len(),
        None => usize::try_from(parallel).unwrap_or_default(),
    }
}

/// Returns the pods by whether they are needed: not if their index has another pod, or doesn't exist any more.
fn by_need<'a>(view: &View<'a>) -> Vec<(bool, &'a Value)> {
    let mut seen = BTreeSet::new();
    let mut is_needed = |pod: &Value| {
        let index = index_of(pod).filter(|index| (0..int(view.job, "/spec/completions")).contains(index));
        !view.is_indexed() || index.is_some_and(|index| seen.insert(index))
    };
    view.active.iter().map(|pod| (is_needed(pod), *pod)).collect()
}

/// Deletes superfluous pods: those that aren't needed, then pending pods, unready ones, and the youngest. Their
/// finalizers are removed before, so that they don't count as failed.
fn remove(mut ranked: Vec<(bool, &Value)>, count: usize) -> Vec<Step> {
    ranked.sort_by_key(|(needed, pod)| {
        let created = time(pod, "/metadata/creationTimestamp");
        let is_bound = !text(pod, "/spec/nodeName").is_empty();
        let is_running = text(pod, "/status/phase") == "Running";
        (*needed, is_bound, is_running, is_ready(pod), Reverse(ready_since(pod)), Reverse(created))
    });
    let pods: Vec<_> = ranked.into_iter().map(|(_, pod)| pod).take(count).collect();
    let mut steps: Vec<_> = pods.iter().filter(|pod| is_tracked(pod)).map(|pod| release(pod)).collect();
    steps.push(Step::DeletePods(pods.iter().map(|pod| named(pod)).collect()));
    steps
}

/// Returns the back-off before the next pod is created, if some of these pods or of earlier ones, by UID, have failed
/// since the last success.
fn delay<'a>(
    view: &View<'_>,
    pods: &[&Value],
    earlier: impl IntoIterator<Item = (&'a str, (Timestamp, bool))>,
) -> Option<Duration> {
    let mut ended: Vec<(Timestamp, bool)> = Vec::new();
    let mut known = BTreeSet::new();
    for (uid, end) in earlier {
        ended.push(end);
        known.insert(uid);
    }
    for pod in pods.iter().filter(|pod| !known.contains(text(pod, "/metadata/uid"))) {
        let failed = has_failed(view.job, pod) && (text(pod, "/status/phase") == "Failed" || is_tracked(pod));
        if failed || text(pod, "/status/phase") == "Succeeded" {
            ended.push((end(pod).unwrap_or(view.now), failed));
        }
    }
    ended.sort_unstable();
    let failures = ended.iter().rev().take_while(|(_, failed)| *failed).count();
    let (last, _) = ended.last().filter(|_| failures > 0)?;
    let doublings = u32::try_from(failures - 1).unwrap_or(u32::MAX).min(10);
    let seconds = (FIRST_DELAY * 2_i64.pow(doublings)).min(LONGEST_DELAY);
    seconds_left(*last, seconds, view.now)
}

/// Returns the time at which a pod ended.
pub(super) fn end(pod: &Value) -> Option<Timestamp> {
    let containers = list(pod, "/status/containerStatuses").iter();
    let last = containers.filter_map(|one| time(one, "/state/terminated/finishedAt")).max();
    // The deletion timestamp is the end of the grace period.
    let asked = || {
        let grace = SignedDuration::from_secs(int(pod, "/metadata/deletionGracePeriodSeconds"));
        time(pod, "/metadata/deletionTimestamp")?.checked_sub(grace).ok()
    };
    last.or_else(asked)
}

fn new_pods(view: &View<'_>, count: usize, waits: bool, plan: &mut Plan) -> Vec<Value> {
    let job = view.job;
    let mut pod = from_template(&job["spec"]["template"], job, &JOB.api_version(), JOB.kind);
    let mut finalizers = list(&pod, "/metadata/finalizers").to_vec();
    finalizers.push(FINALIZER.into());
    pod["metadata"]["finalizers"] = finalizers.into();
    if !view.is_indexed() {
        return vec![pod; count];
    }
    let present = view.pods.iter().filter(|pod| view.active.contains(pod) || waits && is_deleting(pod));
    let taken: BTreeSet<_> = present.filter_map(|pod| index_of(pod)).collect();
    let done = view.counts.indexes.as_ref().map(|indexes| &indexes.0);
    let failed = view.counts.failed_indexes.as_ref().map(|indexes| &indexes.0);
    let is_free = |index: &i64| {
        !taken.contains(index) && [done, failed].into_iter().flatten().all(|ended| !ended.contains(index))
    };
    let mut pods = Vec::new();
    for index in (0..int(job, "/spec/completions")).filter(is_free) {
        if pods.len() == count {
            break;
        }
        let mut pod = with_index(&pod, text(job, "/metadata/name"), index);
        if failed.is_some() {
            let of_index: Vec<_> = view.pods.iter().copied().filter(|pod| index_of(pod) == Some(index)).collect();
            if let Some(delay) = delay(view, &of_index, []) {
                plan.requeue_after(delay);
                continue;
            }
            pod["metadata"]["annotations"][FAILURES] = policy::failures(job, &of_index, index).to_string().into();
        }
        pods.push(pod);
    }
    pods
}

/// Gives a pod its completion index, by name, host name, label, annotation and environment.
fn with_index(pod: &Value, job: &str, index: i64) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["generateName"] = format!("{job}-{index}-").into();
    for field in ["labels", "annotations"] {
        pod["metadata"][field][INDEX] = index.to_string().into();
    }
    if pod["spec"]["hostname"].is_null() {
        pod["spec"]["hostname"] = format!("{job}-{index}").into();
    }
    let variable = json!({
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": format!("metadata.labels['{INDEX}']")}},
    });
    for field in ["containers", "initContainers"] {
        for container in pod["spec"][field].as_array_mut().into_iter().flatten() {
            let mut env = list(container, "/env").to_vec();
            env.retain(|one| one["name"] != "JOB_COMPLETION_INDEX");
            env.push(variable.clone());
            container["env"] = env.into();
        }
    }
    pod
}

/// Returns whether the containers of pods with the restart policy `OnFailure` have been restarted too often.
pub(super) fn restarts_exceed(view: &View<'_>, limit: i64) -> bool {
    if text(view.job, "/spec/template/spec/restartPolicy") != "OnFailure" {
        return false;
    }
    let alive = view.pods.iter().filter(|pod| matches!(text(pod, "/status/phase"), "Running" | "Pending"));
    let containers = alive.flat_map(|pod| {
        list(pod, "/status/initContainerStatuses").iter().chain(list(pod, "/status/containerStatuses"))
    });
    let restarts: i64 = containers.map(|container| int(container, "/restartCount")).sum();
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}
