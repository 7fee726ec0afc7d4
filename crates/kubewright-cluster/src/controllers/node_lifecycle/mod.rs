//! The lifecycle of nodes: the conditions of those whose kubelets have stopped and of the pods there, the taints of
//! those that aren't ready, lack a resource, or are cordoned, and labels by their former names.
//!
//! The cluster's own node lives as long as the cluster, and so its heartbeats aren't watched, and no event announces
//! it.

mod health;
mod labels;
mod taints;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use self::health::Heartbeat;
use super::{
    kind::Kind,
    objects::Objects,
    reconcile::{Controller, Key, Plan, Step, StepKind},
    value::{condition, holds, text},
};
use crate::node::NODE_NAME;

const LEASE: Kind = Kind { group: "coordination.k8s.io", kind: "Lease", plural: "leases" };
/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";
/// The label of nodes that don't count for a disruption.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// The controller of nodes.
pub(crate) struct NodeLifecycle {
    clock: SharedClock,
    nodes: BTreeMap<String, Arc<Value>>,
    /// The times in the leases of nodes, as they are written.
    leases: BTreeMap<String, String>,
    heartbeats: BTreeMap<String, Heartbeat>,
    /// The nodes about which no event was recorded yet.
    unannounced: BTreeSet<String>,
    /// True if no node is ready, which is taken for a fault of the control plane: pods aren't evicted then.
    disrupted: bool,
    pods: Objects,
}

impl fmt::Debug for NodeLifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeLifecycle").field("heartbeats", &self.heartbeats).finish_non_exhaustive()
    }
}

impl NodeLifecycle {
    /// Creates the controller. The clock tells when a heartbeat has been seen.
    pub(crate) fn new(clock: SharedClock, pods: Objects) -> Self {
        let (nodes, leases, heartbeats, unannounced, disrupted) = Default::default();
        Self { clock, nodes, leases, heartbeats, unannounced, disrupted, pods }
    }

    /// Updates whether no node that reports its state is ready, and returns whether that has changed.
    fn observe_disruption(&mut self) -> bool {
        let reporting = self.nodes.values().filter(|node| condition(node, "Ready").is_some());
        let counted = reporting.filter(|node| node["metadata"]["labels"].get(EXCLUDED).is_none());
        let mut ready = counted.map(|node| holds(node, "Ready")).peekable();
        let disrupted = ready.peek().is_some() && !ready.any(|ready| ready);
        std::mem::replace(&mut self.disrupted, disrupted) != disrupted
    }

    /// Notes the heartbeat of a node, if there is another one.
    fn observe(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else {
            self.heartbeats.remove(name);
            return;
        };
        let reported = health::reported(node);
        let renewed = self.leases.get(name).map(String::as_str).unwrap_or_default();
        let known = self.heartbeats.get(name);
        if known.is_none_or(|known| known.reported != reported || known.renewed != renewed) {
            let seen = self.clock.now();
            let heartbeat = Heartbeat { reported: reported.into(), renewed: renewed.into(), seen };
            self.heartbeats.insert(name.into(), heartbeat);
        }
    }

    /// Notes that a node has no event yet, unless it was known before.
    fn note_new(&mut self, name: &str) {
        if !self.heartbeats.contains_key(name) && name != NODE_NAME {
            self.unannounced.insert(name.into());
        }
    }

    fn take_lease(&mut self, lease: &Value, gone: bool) -> bool {
        if text(lease, "/metadata/namespace") != LEASES {
            return false;
        }
        let name = text(lease, "/metadata/name");
        if gone {
            self.leases.remove(name);
        } else {
            self.leases.insert(name.into(), text(lease, "/spec/renewTime").into());
        }
        self.nodes.contains_key(name)
    }

    /// Adds what has to be written because a node has no heartbeat any more.
    fn check_heartbeat(&self, name: &str, node: &Value, now: Timestamp, plan: &mut Plan) {
        let Some(heartbeat) = self.heartbeats.get(name).filter(|_| name != NODE_NAME) else { return };
        let Some(deadline) = health::deadline(node, heartbeat) else { return };
        if now < deadline {
            let left = Duration::try_from(deadline.duration_since(now)).unwrap_or_default();
            plan.requeue_after(left.max(Duration::from_millis(1)));
            return;
        }
        if holds(node, "Ready") {
            // Before the condition of the node, which tells the next decision that this is done.
            let pods = self.pods.all();
            let bound = pods.iter().filter(|pod| text(pod, "/spec/nodeName") == name);
            plan.steps.extend(bound.flat_map(|pod| health::not_ready(pod, now)));
        }
        let metadata = json!({"uid": node["metadata"]["uid"], "resourceVersion": node["metadata"]["resourceVersion"]});
        let patch = json!({"metadata": metadata, "status": {"conditions": health::unknown(node, now)}});
        plan.steps.push(Step::Merge(Kind::NODE.address("", name), "/status", patch));
        if holds(node, "Ready") {
            plan.event(false, "NodeNotReady", format!("Node {name} status is now: NodeNotReady"));
        }
    }
}

impl Controller for NodeLifecycle {
    fn reset(&mut self) {
        // Nodes and leases follow. Heartbeats that have been seen stay so.
        self.nodes.clear();
        self.leases.clear();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        let (object, gone) = (change.object(), change.kind == ChangeKind::Deleted);
        let name = text(object, "/metadata/name");
        let concerns = if Kind::NODE.is_of(change) {
            if gone {
                self.nodes.remove(name);
                self.unannounced.remove(name);
            } else if self.nodes.insert(name.into(), object.clone()).is_none() {
                self.note_new(name);
            }
            true
        } else {
            LEASE.is_of(change) && self.take_lease(object, gone)
        };
        if !concerns {
            return Vec::new();
        }
        self.observe(name);
        let key = |name: &str| Key { namespace: String::new(), name: name.into() };
        if Kind::NODE.is_of(change) && self.observe_disruption() {
            return self.nodes.keys().map(|name| key(name)).collect();
        }
        vec![key(name)]
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(node) = self.nodes.get(&key.name) else { return Plan::default() };
        let mut plan = Plan::of(&Kind::NODE, node);
        self.check_heartbeat(&key.name, node, now, &mut plan);
        if plan.steps.is_empty() {
            let mut patch = Value::Null;
            if let Some(taints) = taints::taints(node, !self.disrupted, now) {
                patch["spec"]["taints"] = taints.into();
            }
            if let Some(labels) = labels::former_labels(node) {
                patch["metadata"]["labels"] = labels.into();
            }
            if !patch.is_null() {
                plan.steps.push(Step::change(&Kind::NODE, node, patch));
            }
        }
        if self.unannounced.contains(&key.name) {
            let message = format!("Node {0} event: Registered Node {0} in Controller", key.name);
            let event = Step::Event { warning: false, reason: "RegisteredNode", message };
            plan.steps.insert(0, event);
        }
        plan
    }

    fn finished(&mut self, key: &Key, _failure: Option<(StepKind, String)>) {
        // The event comes first in the plan.
        self.unannounced.remove(&key.name);
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::clock::SystemClock;

    use super::*;
    use crate::{controllers::reconcile::status_of, events::ObjectEvent};

    /// Returns the plan for a node that has been seen at the beginning, some seconds later.
    fn plan(name: &str, conditions: Value, seconds: i64) -> Plan {
        let mut controller = NodeLifecycle::new(SystemClock::shared(), Objects::default());
        let node = json!({
            "metadata": {"name": name, "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": conditions},
        });
        controller.nodes.insert(name.into(), Arc::new(node));
        controller.observe(name);
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        controller.heartbeats.get_mut(name).expect("a heartbeat").seen = start;
        let key = Key { namespace: String::new(), name: name.into() };
        controller.decide(&key, start + jiff::SignedDuration::from_secs(seconds))
    }

    fn shown(plan: &Plan) -> Vec<String> {
        let conditions = status_of(plan)["conditions"].clone();
        let conditions = conditions.as_array().cloned().unwrap_or_default();
        let show = |one: &Value| format!("{} {} {}", text(one, "/type"), text(one, "/status"), text(one, "/reason"));
        conditions.iter().map(show).collect()
    }

    #[test]
    fn the_state_of_a_node_without_heartbeats_is_unknown() {
        let never = plan("far", json!([]), 60);
        let expect = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
            .map(|name| format!("{name} Unknown NodeStatusNeverUpdated"));
        assert_eq!(shown(&never), expect);
        let ready = || json!([{"type": "Other", "status": "True"}, {"type": "Ready", "status": "True", "reason": "KubeletReady"}]);
        let stopped = plan("far", ready(), 50);
        let mut expect = expect.to_vec();
        expect[0] = "Ready Unknown NodeStatusUnknown".into();
        expect.insert(0, "Other True ".into());
        assert_eq!(shown(&stopped), expect);
        let event = stopped.steps.iter().find_map(|step| match step {
            Step::Event { reason, message, .. } => Some((*reason, message.as_str())),
            _ => None,
        });
        assert_eq!(event, Some(("NodeNotReady", "Node far status is now: NodeNotReady")));
        assert_eq!(plan(NODE_NAME, ready(), 500), Plan { requeue_after: None, ..plan(NODE_NAME, ready(), 0) });
    }

    #[test]
    fn pods_are_not_evicted_while_no_node_is_ready() {
        let mut controller = NodeLifecycle::new(SystemClock::shared(), Objects::default());
        let set = |controller: &mut NodeLifecycle, name: &str, ready: &str| {
            let conditions = json!([{"type": "Ready", "status": ready}]);
            let node = json!({"metadata": {"name": name}, "status": {"conditions": conditions}});
            controller.nodes.insert(name.into(), Arc::new(node));
            controller.observe_disruption()
        };
        let evicts = |controller: &NodeLifecycle| {
            let plan = controller.decide(&Key { namespace: String::new(), name: "a".into() }, Timestamp::UNIX_EPOCH);
            format!("{:?}", plan.steps).contains("NoExecute")
        };
        assert!(set(&mut controller, "a", "Unknown") && !evicts(&controller));
        assert!(set(&mut controller, "b", "True") && evicts(&controller));
        assert!(!set(&mut controller, "c", "False") && evicts(&controller));
        assert!(set(&mut controller, "b", "False") && !evicts(&controller));
    }

    #[test]
    fn heartbeats_are_waited_for() {
        let ready = || json!([{"type": "Ready", "status": "True"}]);
        for (conditions, seconds, left) in [(ready(), 49, 1), (ready(), 0, 50), (json!([]), 10, 50)] {
            let plan = plan("far", conditions, seconds);
            assert_eq!((plan.requeue_after, shown(&plan)), (Some(Duration::from_secs(left)), Vec::new()));
        }
        let unknown = plan("far", json!([{"type": "Ready", "status": "Unknown"}]), 500);
        assert_eq!((unknown.requeue_after, shown(&unknown)), (None, Vec::new()));
    }

    #[test]
    fn pods_of_a_silent_node_are_not_ready() {
        let pod = json!({
            "metadata": {"name": "a", "namespace": "default", "uid": "p", "generation": 3},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]},
        });
        let steps = health::not_ready(&pod, Timestamp::UNIX_EPOCH);
        let [Step::Merge(_, "/status", patch), Step::EventAbout(event)] = &steps[..] else { panic!("{steps:?}") };
        assert!(event.warning);
        let ObjectEvent { regarding, reason, message, .. } = event;
        let ready = json!({
            "type": "Ready", "status": "False", "observedGeneration": 3, "lastTransitionTime": "1970-01-01T00:00:00Z",
        });
        assert_eq!(patch["status"]["conditions"], json!([ready]));
        assert_eq!(
            (reason.as_str(), message.as_str(), regarding[1].as_str()),
            ("NodeNotReady", "Node is not ready", "Pod")
        );
        let waiting =
            json!({"metadata": {"name": "b"}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        assert_eq!(health::not_ready(&waiting, Timestamp::UNIX_EPOCH), []);
    }

    #[test]
    fn a_node_is_announced_once() {
        let mut controller = NodeLifecycle::new(SystemClock::shared(), Objects::default());
        let node = json!({"metadata": {"name": "far", "uid": "u"}, "status": {}});
        controller.nodes.insert("far".into(), Arc::new(node));
        controller.note_new("far");
        controller.note_new(NODE_NAME);
        assert_eq!(controller.unannounced.len(), 1);
        let key = Key { namespace: String::new(), name: "far".into() };
        let announced = |controller: &NodeLifecycle| {
            let plan = controller.decide(&key, Timestamp::UNIX_EPOCH);
            plan.steps.iter().any(|step| matches!(step, Step::Event { reason: "RegisteredNode", .. }))
        };
        assert!(announced(&controller));
        controller.finished(&key, None);
        assert!(!announced(&controller));
    }
}
