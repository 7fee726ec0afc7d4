//! Daemon sets: one pod on each node that its node selector, affinity and tolerations allow
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/>).
//!
//! * [`placement`]: the nodes of the pods, and new pods
//! * [`rollout`]: the replacement of pods of an old revision
//! * [`status`]: the counts
//! * [`backoff`]: the delay before a failed pod is replaced

mod backoff;
mod placement;
mod rollout;
mod status;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use parking_lot::Mutex;
use serde_json::Value;

use self::{
    backoff::{FailedPods, Place},
    placement::Fit,
};
use super::{
    controller_refs::ControllerRefs,
    history::{CONTROLLER_REVISION, History},
    kind::Kind,
    objects::Objects,
    pod::{is_ready, until_available},
    reconcile::{Controller, Key, Plan, Step},
    value::{amount, int, is_deleting, text},
};

/// The kind `DaemonSet`.
pub(crate) const DAEMON_SET: Kind = Kind { group: "apps", kind: "DaemonSet", plural: "daemonsets" };

/// The label of pods and revisions with the hash of the template.
const HASH: &str = "controller-revision-hash";

/// The daemon set controller.
#[derive(Debug)]
pub(crate) struct DaemonSets {
    pods: ControllerRefs,
    revisions: ControllerRefs,
    nodes: BTreeMap<String, Arc<Value>>,
    failed: Mutex<FailedPods>,
}

impl DaemonSets {
    /// Creates the controller. `pods` include each pod before its change is taken.
    pub(crate) fn new(pods: Objects) -> Self {
        Self {
            pods: ControllerRefs::of_pods(DAEMON_SET, pods),
            revisions: ControllerRefs::new(DAEMON_SET, CONTROLLER_REVISION),
            nodes: BTreeMap::new(),
            failed: Mutex::default(),
        }
    }
}

impl Controller for DaemonSets {
    fn reset(&mut self) {
        self.pods.reset();
        self.revisions.reset();
        self.nodes.clear();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if Kind::NODE.is_of(change) {
            return self.take_node(change);
        }
        let mut keys = self.pods.take(change);
        keys.extend(self.revisions.take(change));
        keys
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(set) = self.pods.parent(key) else { return Plan::default() };
        let mut plan = Plan::of(&DAEMON_SET, set);
        let (pods, revisions) = (self.pods.claim(key, set), self.revisions.claim(key, set));
        plan.steps.extend(pods.steps);
        plan.steps.extend(revisions.steps);
        if !plan.steps.is_empty() {
            // Later steps would fail with a conflict, since these steps change the versions of the children.
            return plan;
        }
        let taken = |name: &str| self.revisions.has_child(&Key { name: name.into(), ..key.clone() });
        let revisions = revisions.children.iter().map(|revision| &**revision).collect();
        let history = History { owner: set, kind: DAEMON_SET, label: HASH, revisions, taken: &taken };
        let nodes = self.nodes.values().map(|node| &**node).collect();
        let pods = pods.children.iter().map(|pod| &**pod).collect();
        decide(set, nodes, pods, &history, now, &mut self.failed.lock(), &mut plan);
        plan
    }
}

impl DaemonSets {
    /// Processes a change of a node, and returns all sets if it may concern them. The heartbeats of nodes don't.
    fn take_node(&mut self, change: &Change) -> Vec<Key> {
        let node = change.object();
        let name = text(node, "/metadata/name").to_owned();
        let before = if change.kind == ChangeKind::Deleted {
            self.nodes.remove(&name)
        } else {
            self.nodes.insert(name, node.clone())
        };
        let same = |before: Arc<Value>| {
            change.kind != ChangeKind::Deleted
                && before["spec"] == node["spec"]
                && before["metadata"]["labels"] == node["metadata"]["labels"]
        };
        if before.is_some_and(same) { Vec::new() } else { self.pods.parents().cloned().collect() }
    }
}

/// The input of a decision.
struct View<'a> {
    set: &'a Value,
    /// The hash of the present template.
    hash: &'a str,
    /// The nodes, and whether they should have a pod.
    nodes: Vec<(&'a Value, Fit)>,
    /// The pods of each node, oldest first.
    pods: BTreeMap<String, Vec<&'a Value>>,
    now: Timestamp,
}

impl<'a> View<'a> {
    /// Returns the pods of a node.
    fn on(&self, node: &Value) -> &[&'a Value] {
        self.pods.get(text(node, "/metadata/name")).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns what the delays of failed pods on a node depend on.
    fn place(&self, node: &str) -> Place {
        Place {
            set: text(self.set, "/metadata/uid").into(),
            generation: int(self.set, "/status/observedGeneration"),
            node: node.into(),
        }
    }

    fn is_updated(&self, pod: &Value) -> bool {
        pod["metadata"]["labels"][HASH] == self.hash
    }

    fn is_available(&self, pod: &Value) -> bool {
        let least = int(self.set, "/spec/minReadySeconds");
        until_available(pod, least, self.now).is_some_and(|delay| delay.is_zero())
    }

    /// Returns the number of nodes that should have a pod.
    fn desired(&self) -> i64 {
        self.nodes.iter().map(|(_, fit)| i64::from(fit.starts)).sum()
    }

    /// Returns the number of pods that may be created beside an old one.
    fn surge(&self) -> i64 {
        let parameters = &self.set["spec"]["updateStrategy"]["rollingUpdate"];
        amount(&parameters["maxSurge"], self.desired(), true)
    }
}

/// Decides the next steps for a daemon set.
fn decide(
    set: &Value,
    nodes: Vec<&Value>,
    pods: Vec<&Value>,
    history: &History<'_>,
    now: Timestamp,
    failed: &mut FailedPods,
    plan: &mut Plan,
) {
    let mut latest = history.latest();
    let deleting = is_deleting(set);
    plan.steps.extend(latest.step.take().filter(|_| !deleting));
    let nodes: Vec<_> = nodes.into_iter().map(|node| (node, placement::fit(set, node))).collect();
    let view = View { set, hash: &latest.hash, nodes, pods: placement::by_node(pods), now };
    let status = status::status(&view, latest.collisions, plan);
    plan.steps.extend(Step::status(&DAEMON_SET, set, status));
    if deleting {
        return;
    }
    let mut changes = manage(&view, failed, plan);
    if changes.is_empty() && text(set, "/spec/updateStrategy/type") == "RollingUpdate" {
        changes = rollout::changes(&view);
    }
    changes.apply(&view, plan);
    let used = |revision: &Value| {
        let hash = revision["metadata"]["labels"][HASH].as_str().unwrap_or_default();
        let pods = view.pods.values().flatten();
        hash == view.hash || pods.into_iter().any(|pod| pod["metadata"]["labels"][HASH] == hash)
    };
    plan.steps.extend(history.truncate(used));
}

/// The nodes that get a pod, and the pods that are deleted.
#[derive(Debug, Default)]
struct Changes<'a> {
    nodes: Vec<&'a Value>,
    pods: Vec<&'a Value>,
}

impl Changes<'_> {
    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.pods.is_empty()
    }

    fn apply(self, view: &View<'_>, plan: &mut Plan) {
        if !self.pods.is_empty() {
            let named = |pod: &&Value| (text(pod, "/metadata/name").into(), text(pod, "/metadata/uid").into());
            plan.steps.push(Step::DeletePods(self.pods.iter().map(named).collect()));
        }
        if !self.nodes.is_empty() {
            let pods = self.nodes.iter().map(|node| placement::new_pod(view.set, view.hash, node)).collect();
            plan.steps.push(Step::CreatePods(pods));
        }
    }
}

/// Returns the changes after which each node has the pods that it should have.
fn manage<'a>(view: &View<'a>, failed: &mut FailedPods, plan: &mut Plan) -> Changes<'a> {
    let mut changes = Changes::default();
    for (node, fit) in &view.nodes {
        let pods = view.on(node);
        if fit.starts && pods.is_empty() {
            changes.nodes.push(node);
        } else if fit.continues {
            prune(view, node, *fit, failed, &mut changes, plan);
        } else {
            changes.pods.extend(pods.iter().filter(|pod| !is_deleting(pod)));
        }
    }
    let is_known = |name: &String| view.nodes.iter().any(|(node, _)| text(node, "/metadata/name") == name);
    for (_, pods) in view.pods.iter().filter(|(name, _)| !is_known(name)) {
        // A pod that was bound to a node belongs to it. Others wait for a node that is gone.
        let waits = |pod: &&&Value| text(pod, "/spec/nodeName").is_empty() && !is_deleting(pod);
        changes.pods.extend(pods.iter().filter(waits));
    }
    changes
}

/// Deletes the pods of a node that have ended, and those that are too many.
fn prune<'a>(
    view: &View<'a>,
    node: &'a Value,
    fit: Fit,
    failed: &mut FailedPods,
    changes: &mut Changes<'a>,
    plan: &mut Plan,
) {
    let name = text(node, "/metadata/name");
    let mut running = Vec::new();
    for pod in view.on(node).iter().copied().filter(|pod| !is_deleting(pod)) {
        let of =
            format!("daemon pod {}/{} on node {name}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        match text(pod, "/status/phase") {
            "Failed" => {
                if let Some(delay) = failed.delay(view.place(name), view.now) {
                    plan.requeue_after(delay);
                    continue;
                }
                plan.event(true, "FailedDaemonPod", format!("Found failed {of}, will try to kill it"));
                changes.pods.push(pod);
            }
            "Succeeded" => {
                plan.event(false, "SucceededDaemonPod", format!("Found succeeded {of}, will try to delete it"));
                changes.pods.push(pod);
            }
            _ => running.push(pod),
        }
    }
    if view.surge() == 0 {
        changes.pods.extend(running.into_iter().skip(1));
        return;
    }
    if running.is_empty() && fit.starts {
        changes.nodes.push(node);
    }
    if running.len() < 2 {
        return;
    }
    // While a pod replaces another one, both stay until the new one is available.
    let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| view.is_updated(pod));
    changes.pods.extend(new.iter().skip(1).chain(old.iter().skip(1)));
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!is_ready(old) || view.is_available(new))
    {
        changes.pods.push(old);
    }
}
