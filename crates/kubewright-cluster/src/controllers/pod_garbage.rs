//! The removal of pods that no kubelet will end: those whose node is gone, those that are being deleted on a node that
//! is out of service, and those that are being deleted before they had a node. Of the pods that have ended, the newest
//! stay until their owners delete them
//! (<https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection>).

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
    pod::{has_ended, with_condition},
    reconcile::{Controller, Deletion, Key, Plan, Step},
    value::{holds, is_deleting, list, stamp, text},
};

/// The time for which a node has to be absent.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// The time after its deletion from which on a pod without a node fails: Kubernetes looks for such pods that often.
const PERIOD: SignedDuration = SignedDuration::from_secs(20);

/// The number of ended pods that stay.
const MAX_ENDED: usize = 12_500;

/// The taint of a node whose pods have certainly stopped.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The controller of abandoned pods.
#[derive(Debug)]
pub(crate) struct PodGarbage {
    clock: SharedClock,
    pods: Objects,
    /// The nodes, and whether they are out of service.
    nodes: BTreeMap<String, bool>,
    /// The pods of each node, whether it is there or not. The node without a name has those that are being deleted.
    bound: BTreeMap<String, BTreeSet<Key>>,
    /// The node of each of these pods.
    node_of: BTreeMap<Key, String>,
    /// The time since which a node has been absent.
    absent: BTreeMap<String, Timestamp>,
    ended: EndedPods,
}

/// The pods that have ended: the newest, up to a limit, and the others, which are all older.
#[derive(Debug)]
struct EndedPods {
    limit: usize,
    newest: BTreeSet<EndedPod>,
    surplus: BTreeSet<EndedPod>,
    /// The age of each of them.
    ages: BTreeMap<Key, Age>,
}

/// What ended pods are sorted by: those that were not evicted stay longer, and the newer ones. The time is as it is
/// written.
type Age = (bool, String);
type EndedPod = (Age, Key);

impl EndedPods {
    fn new(limit: usize) -> Self {
        let (newest, surplus, ages) = Default::default();
        Self { limit, newest, surplus, ages }
    }

    /// Adds a pod. Returns the one that is too many.
    fn insert(&mut self, key: &Key, pod: &Value) -> Option<Key> {
        let was_evicted = text(pod, "/status/phase") == "Failed" && text(pod, "/status/reason") == "Evicted";
        let age = (!was_evicted, text(pod, "/metadata/creationTimestamp").to_owned());
        if self.ages.get(key) == Some(&age) {
            return None;
        }
        self.remove(key);
        self.ages.insert(key.clone(), age.clone());
        self.newest.insert((age, key.clone()));
        if self.newest.len() <= self.limit {
            return None;
        }
        let oldest = self.newest.pop_first()?;
        let key = oldest.1.clone();
        self.surplus.insert(oldest);
        Some(key)
    }

    fn remove(&mut self, key: &Key) {
        let Some(age) = self.ages.remove(key) else { return };
        let pod = (age, key.clone());
        if !self.surplus.remove(&pod) && self.newest.remove(&pod) {
            self.newest.extend(self.surplus.pop_last());
        }
    }

    fn is_surplus(&self, key: &Key) -> bool {
        self.ages.get(key).is_some_and(|age| self.surplus.contains(&(age.clone(), key.clone())))
    }
}

impl PodGarbage {
    /// Creates the controller. `pods` include each pod before its change is taken. The clock tells since when a node
    /// has been absent.
    pub(crate) fn new(clock: SharedClock, pods: Objects) -> Self {
        let (nodes, bound, node_of, absent) = Default::default();
        Self { clock, pods, nodes, bound, node_of, absent, ended: EndedPods::new(MAX_ENDED) }
    }

    /// Notes a node, or that it is gone.
    fn take_node(&mut self, name: &str, node: Option<&Value>) -> Vec<Key> {
        let is_out = node.map(is_out_of_service);
        let was_out = match is_out {
            Some(is_out) => self.nodes.insert(name.into(), is_out),
            None => self.nodes.remove(name),
        };
        if was_out == is_out {
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
        let too_many = if has_ended(pod) && !gone {
            self.ended.insert(&key, pod)
        } else {
            self.ended.remove(&key);
            None
        };
        let concerns = node.is_some_and(|node| self.nodes.get(node).is_none_or(|is_out| *is_out));
        too_many.into_iter().chain(concerns.then_some(key)).collect()
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
        if self.nodes.contains_key(node) || !self.bound.contains_key(node) {
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
            self.take_node(text(object, "/metadata/name"), Some(&**object).filter(|_| !gone))
        } else if let Some(key) = Key::of(object).filter(|_| Kind::POD.is_of(change)) {
            self.take_pod(key, object, gone)
        } else {
            Vec::new()
        }
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(pod) = self.pods.get(key) else { return Plan::default() };
        let mut plan = Plan::of(&Kind::POD, &pod);
        let node = self.node_of.get(key);
        let is_out = node.and_then(|node| self.nodes.get(node)).is_some_and(|is_out| *is_out);
        if self.ended.is_surplus(key) || is_out && is_deleting(&pod) {
            remove(&pod, None, &mut plan);
            return plan;
        }
        let Some(node) = node else { return plan };
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
            None => remove(&pod, Some(without_node(&pod, now)), &mut plan),
        }
        plan
    }
}

/// Returns whether the pods of a node have stopped, as somebody says who knows.
fn is_out_of_service(node: &Value) -> bool {
    !holds(node, "Ready") && list(node, "/spec/taints").iter().any(|taint| taint["key"] == OUT_OF_SERVICE)
}

/// Returns the condition of a pod whose node is gone.
fn without_node(pod: &Value, now: Timestamp) -> Value {
    json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
        "lastTransitionTime": stamp(now), "observedGeneration": pod["metadata"]["generation"],
    })
}

/// Ends a pod, if it hasn't ended, and deletes it.
fn remove(pod: &Value, condition: Option<Value>, plan: &mut Plan) {
    plan.steps.extend(fail(pod, condition));
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
        status["conditions"] = with_condition(pod, condition).into();
    }
    Step::shared_status(&Kind::POD, pod, status)
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
        let running = pod("gone", "Running");
        remove(&running, Some(without_node(&running, Timestamp::UNIX_EPOCH)), &mut plan);
        let [Step::Merge(_, "/status", patch), Step::Delete(path, uid, Deletion::Now)] = &plan.steps[..] else {
            panic!("{plan:?}")
        };
        assert_eq!((path.to_string().as_str(), uid.as_str()), ("/api/v1/namespaces/default/pods/a", "u"));
        assert_eq!((&patch["status"]["phase"], &patch["status"]["observedGeneration"]), (&json!("Failed"), &json!(2)));
        let condition = &patch["status"]["conditions"][0];
        assert_eq!((&condition["reason"], &condition["observedGeneration"]), (&json!("DeletionByPodGC"), &json!(2)));
        let mut plan = Plan::default();
        remove(&pod("gone", "Succeeded"), None, &mut plan);
        assert!(matches!(&plan.steps[..], [Step::Delete(_, _, Deletion::Now)]), "{plan:?}");
        let mut held = pod("gone", "Failed");
        held["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        let mut plan = Plan::default();
        remove(&held, None, &mut plan);
        assert_eq!(plan.steps, []);
    }

    #[test]
    fn absence_is_timed() {
        let clock = kubewright_apimachinery::clock::SystemClock::shared();
        let mut controller = PodGarbage::new(clock, Objects::default());
        let key = Key { namespace: "default".into(), name: "a".into() };
        controller.take_node("there", Some(&json!({})));
        assert_eq!(controller.take_pod(key.clone(), &pod("there", "Running"), false), []);
        assert_eq!(controller.absent.len(), 0);
        assert_eq!(controller.take_node("there", None), std::slice::from_ref(&key));
        assert!(controller.absent.contains_key("there"));
        assert_eq!(controller.take_node("there", Some(&json!({}))), std::slice::from_ref(&key));
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

    #[test]
    fn the_newest_ended_pods_stay() {
        let key = |name: &str| Key { namespace: "default".into(), name: name.into() };
        let ended = |second: u32, reason: &str| {
            json!({
                "metadata": {"creationTimestamp": format!("2026-01-01T00:00:0{second}Z")},
                "status": {"phase": "Failed", "reason": reason},
            })
        };
        let mut pods = EndedPods::new(2);
        assert_eq!(pods.insert(&key("a"), &ended(5, "Evicted")), None);
        assert_eq!(pods.insert(&key("b"), &ended(2, "")), None);
        assert_eq!(pods.insert(&key("b"), &ended(2, "")), None, "it is known");
        assert_eq!(pods.insert(&key("c"), &ended(3, "")), Some(key("a")));
        assert_eq!(pods.insert(&key("d"), &ended(1, "")), Some(key("d")));
        assert_eq!(["a", "b", "c", "d"].map(|name| pods.is_surplus(&key(name))), [true, false, false, true]);
        // One that goes makes room for the newest of the others.
        pods.remove(&key("c"));
        assert_eq!(["a", "b", "d"].map(|name| pods.is_surplus(&key(name))), [true, false, false]);
        pods.remove(&key("a"));
        assert_eq!((pods.newest.len(), pods.surplus.len(), pods.ages.len()), (2, 0, 2));
    }

    #[test]
    fn pods_that_are_deleted_on_a_node_out_of_service_go() {
        let objects = Objects::default();
        let mut controller = PodGarbage::new(kubewright_apimachinery::clock::SystemClock::shared(), objects.clone());
        let key = Key { namespace: "default".into(), name: "a".into() };
        let mut deleted = pod("far", "Running");
        deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        objects.insert(&deleted, deleted.clone().into());
        controller.take_node("far", Some(&json!({})));
        assert_eq!(controller.take_pod(key.clone(), &deleted, false), []);
        let node = |ready: &str| {
            json!({
                "spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        assert_eq!(controller.take_node("far", Some(&node("True"))), []);
        assert!(controller.decide(&key, Timestamp::UNIX_EPOCH).steps.is_empty());
        assert_eq!(controller.take_node("far", Some(&node("Unknown"))), std::slice::from_ref(&key));
        let plan = controller.decide(&key, Timestamp::UNIX_EPOCH);
        let [Step::Merge(_, "/status", patch), Step::Delete(_, _, Deletion::Now)] = &plan.steps[..] else {
            panic!("{plan:?}")
        };
        assert_eq!((&patch["status"]["phase"], patch["status"].get("conditions")), (&json!("Failed"), None));
        objects.insert(&pod("far", "Running"), pod("far", "Running").into());
        assert!(controller.decide(&key, Timestamp::UNIX_EPOCH).steps.is_empty(), "it isn't deleted");
    }
}
