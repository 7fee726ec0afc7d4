//! The removal of pods that no kubelet will end: those whose node is gone, and those that are being deleted before they had a node
//! (<https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection>).
//!
//! Ended pods stay until their owners delete them, however many there are.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    objects::Objects,
    pod::has_ended,
    reconcile::{Controller, Deletion, Key, Plan, Step},
    value::{is_deleting, list, stamp, text},
};

/// The time for which a node has to be absent.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// The time after its deletion from which on a pod without a node fails: Kubernetes looks for such pods that often.
const PERIOD: SignedDuration = SignedDuration::from_secs(20);

/// The controller of abandoned pods.
#[derive(Debug)]
pub(crate) struct PodGarbage {
    clock: SharedClock,
    pods: Objects,
    nodes: BTreeSet<String>,
    /// The pods of each node, whether it is there or not. The node without a name has those that are being deleted.
    bound: BTreeMap<String, BTreeSet<Key>>,
    /// The node of each of these pods.
    node_of: BTreeMap<Key, String>,
    /// The time since which a node has been absent.
    absent: BTreeMap<String, Timestamp>,
}

impl PodGarbage {
    /// Creates the controller. `pods` include each pod before its change is taken. The clock tells since when a node has been absent.
    pub(crate) fn new(clock: SharedClock, pods: Objects) -> Self {
        let (nodes, bound, node_of, absent) = Default::default();
        Self { clock, pods, nodes, bound, node_of, absent }
    }

    fn take_node(&mut self, name: &str, gone: bool) -> Vec<Key> {
        let changed = if gone { self.nodes.remove(name) } else { self.nodes.insert(name.into()) };
        if !changed {
            return Vec::new();
        }
        self.watch(name);
        self.bound.get(name).into_iter().flatten().cloned().collect()
    }

    fn take_pod(&mut self, key: Key, pod: &Value, gone: bool) -> Vec<Key> {
        let node = text(pod, "/spec/nodeName");
        let node = Some(node).filter(|node| !gone && (!node.is_empty() || is_deleting(pod)));
        if self.node_of.get(&key).map(String::as_str) != node {
            self.forget(&key);
            if let Some(node) = node {
                self.bound.entry(node.into()).or_default().insert(key.clone());
                self.node_of.insert(key.clone(), node.into());
                self.watch(node);
            }
        }
        let concerns = node.is_some_and(|node| !self.nodes.contains(node));
        if concerns { vec![key] } else { Vec::new() }
    }

    fn forget(&mut self, key: &Key) {
        let Some(node) = self.node_of.remove(key) else { return };
        if let Some(pods) = self.bound.get_mut(&node) {
            pods.remove(key);
            if pods.is_empty() {
                self.bound.remove(&node);
            }
        }
        self.watch(&node);
    }

    /// Starts or stops the time of a node that has pods but isn't there.
    fn watch(&mut self, node: &str) {
        if self.nodes.contains(node) || !self.bound.contains_key(node) {
            self.absent.remove(node);
        } else if !node.is_empty() {
            let now = self.clock.now();
            self.absent.entry(node.into()).or_insert(now);
        }
    }
}

impl Controller for PodGarbage {
    fn reset(&mut self) {
        *self = Self::new(self.clock.clone(), self.pods.clone());
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        let (object, gone) = (change.object(), change.kind == ChangeKind::Deleted);
        if Kind::NODE.is_of(change) {
            self.take_node(text(object, "/metadata/name"), gone)
        } else if let Some(key) = Key::of(object).filter(|_| Kind::POD.is_of(change)) {
            self.take_pod(key, object, gone)
        } else {
            Vec::new()
        }
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let (Some(node), Some(pod)) = (self.node_of.get(key), self.pods.get(key)) else { return Plan::default() };
        let mut plan = Plan::of(&Kind::POD, &pod);
        let (since, patience) = if node.is_empty() {
            // A finalizer keeps it, which its owner may be about to remove.
            (text(&pod, "/metadata/deletionTimestamp").parse().ok(), PERIOD)
        } else {
            (self.absent.get(node).copied(), QUARANTINE)
        };
        let Some(since) = since else { return plan };
        let left = patience.checked_sub(now.duration_since(since)).unwrap_or_default();
        match Duration::try_from(left).ok().filter(|left| !left.is_zero()) {
            Some(left) => plan.requeue_after(left),
            None if node.is_empty() => plan.steps.extend(fail(&pod, None)),
            None => abandon(&pod, now, &mut plan),
        }
        plan
    }
}

/// Ends and deletes the pod of a node that is gone.
fn abandon(pod: &Value, now: Timestamp, plan: &mut Plan) {
    let target = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
        "lastTransitionTime": stamp(now), "observedGeneration": pod["metadata"]["generation"],
    });
    plan.steps.extend(fail(pod, Some(target)));
    // Without a grace period a pod is gone, unless a finalizer holds it.
    if pod["metadata"]["deletionGracePeriodSeconds"] != 0 {
        plan.steps.push(Step::delete_as(&Kind::POD, pod, Deletion::Now));
    }
}

/// Returns the step after which a pod has failed, if it hasn't ended.
fn fail(pod: &Value, condition: Option<Value>) -> Option<Step> {
    if has_ended(pod) {
        return None;
    }
    let mut status = pod["status"].clone();
    status["phase"] = "Failed".into();
    status["observedGeneration"] = pod["metadata"]["generation"].clone();
    if let Some(condition) = condition {
        let others = list(pod, "/status/conditions").iter().filter(|one| one["type"] != condition["type"]);
        status["conditions"] = others.cloned().chain([condition.clone()]).collect();
    }
    Step::status(&Kind::POD, pod, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: &str, phase: &str) -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "default", "uid": "u", "generation": 2},
            "spec": {"nodeName": node}, "status": {"phase": phase},
        })
    }

    #[test]
    fn pods_of_absent_nodes_fail_and_are_deleted() {
        let mut plan = Plan::default();
        abandon(&pod("gone", "Running"), Timestamp::UNIX_EPOCH, &mut plan);
        let [Step::Merge(_, "/status", patch), Step::Delete(path, uid, Deletion::Now)] = &plan.steps[..] else {
            panic!("{plan:?}")
        };
        assert_eq!((path.to_string().as_str(), uid.as_str()), ("/api/v1/namespaces/default/pods/a", "u"));
        assert_eq!((&patch["status"]["phase"], &patch["status"]["observedGeneration"]), (&json!("Failed"), &json!(2)));
        let condition = &patch["status"]["conditions"][0];
        assert_eq!((&condition["reason"], &condition["observedGeneration"]), (&json!("DeletionByPodGC"), &json!(2)));
        let mut plan = Plan::default();
        abandon(&pod("gone", "Succeeded"), Timestamp::UNIX_EPOCH, &mut plan);
        assert!(matches!(&plan.steps[..], [Step::Delete(_, _, Deletion::Now)]), "{plan:?}");
        let mut held = pod("gone", "Failed");
        held["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        let mut plan = Plan::default();
        abandon(&held, Timestamp::UNIX_EPOCH, &mut plan);
        assert_eq!(plan.steps, []);
    }

    #[test]
    fn absence_is_timed() {
        let clock = kubewright_apimachinery::clock::SystemClock::shared();
        let mut controller = PodGarbage::new(clock, Objects::default());
        let key = Key { namespace: "default".into(), name: "a".into() };
        controller.take_node("there", false);
        assert_eq!(controller.take_pod(key.clone(), &pod("there", "Running"), false), []);
        assert_eq!(controller.absent.len(), 0);
        assert_eq!(controller.take_node("there", true), std::slice::from_ref(&key));
        assert!(controller.absent.contains_key("there"));
        assert_eq!(controller.take_node("there", false), std::slice::from_ref(&key));
        assert_eq!(controller.absent.len(), 0);
        let other = pod("other", "Running");
        assert_eq!(controller.take_pod(key.clone(), &other, false), std::slice::from_ref(&key));
        assert_eq!(controller.absent.keys().collect::<Vec<_>>(), ["other"]);
        controller.take_pod(key, &other, true);
        assert!(controller.absent.is_empty() && controller.bound.is_empty() && controller.node_of.is_empty());
    }

    #[test]
    fn pods_that_never_had_a_node_fail() {
        let Some(Step::Merge(_, "/status", patch)) = fail(&pod("", "Pending"), None) else { panic!("no step") };
        assert_eq!((&patch["status"]["phase"], patch["status"].get("conditions")), (&json!("Failed"), None));
    }
}
