//! The eviction of pods from nodes with taints of the effect `NoExecute`
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions>).
//!
//! A pod that doesn't tolerate such a taint is deleted at once, and one that tolerates it for some seconds after these
//! seconds.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use jiff::Timestamp;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{Change, ChangeKind, StoredObject};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    pod::{has_ended, with_condition},
    reconcile::{Controller, Key, Plan, Step},
    scheduler::filter::tolerates,
    value::{is_deleting, list, number, stamp, text},
};

/// The controller of evictions.
#[derive(Debug)]
pub(crate) struct TaintEvictions {
    clock: SharedClock,
    /// The taints of each node that evict pods.
    taints: BTreeMap<String, Vec<Value>>,
    /// The pods on nodes. They are parsed only if their node has taints.
    pods: BTreeMap<Key, Bound>,
    /// The time since which a pod has had to go.
    since: BTreeMap<Key, Timestamp>,
}

/// A pod on a node.
#[derive(Debug)]
struct Bound {
    node: String,
    pod: StoredObject,
}

impl TaintEvictions {
    /// Creates the controller. The clock tells since when a taint has been there.
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self { clock, taints: BTreeMap::new(), pods: BTreeMap::new(), since: BTreeMap::new() }
    }

    fn taints_of(&self, bound: &Bound) -> &[Value] {
        self.taints.get(&bound.node).map(Vec::as_slice).unwrap_or_default()
    }

    fn has_to_go(&self, bound: &Bound) -> bool {
        let taints = self.taints_of(bound);
        !taints.is_empty() && grace(&bound.pod.value(), taints).is_some()
    }

    /// Starts or stops the time of a pod.
    fn watch(&mut self, key: &Key) {
        let has_to_go = self.pods.get(key).is_some_and(|bound| self.has_to_go(bound));
        match self.since.entry(key.clone()) {
            Entry::Vacant(entry) if has_to_go => drop(entry.insert(self.clock.now())),
            Entry::Occupied(entry) if !has_to_go => drop(entry.remove()),
            _ => {}
        }
    }

    fn take_node(&mut self, node: &Value, gone: bool) -> Vec<Key> {
        let name = text(node, "/metadata/name");
        let evicting = list(node, "/spec/taints").iter().filter(|taint| taint["effect"] == "NoExecute" && !gone);
        let evicting: Vec<_> = evicting.cloned().collect();
        if self.taints.get(name).map(Vec::as_slice).unwrap_or_default() == evicting {
            return Vec::new();
        }
        self.taints.insert(name.into(), evicting);
        self.taints.retain(|_, taints| !taints.is_empty());
        let on_node = self.pods.iter().filter(|(_, bound)| bound.node == name);
        on_node.map(|(key, _)| key.clone()).collect()
    }
}

/// Returns how long a pod may stay; `None` if it may stay forever.
fn grace(pod: &Value, taints: &[Value]) -> Option<Duration> {
    let mut least = None;
    for taint in taints {
        let toleration = list(pod, "/spec/tolerations").iter().find(|toleration| tolerates(toleration, taint));
        let seconds = match toleration {
            None => Some(0),
            Some(toleration) => {
                number(toleration, "/tolerationSeconds").map(|seconds| u64::try_from(seconds).unwrap_or(0))
            }
        };
        if let Some(seconds) = seconds {
            least = Some(least.map_or(seconds, |least: u64| least.min(seconds)));
        }
    }
    least.map(Duration::from_secs)
}

impl Controller for TaintEvictions {
    fn reset(&mut self) {
        *self = Self::new(self.clock.clone());
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        let gone = change.kind == ChangeKind::Deleted;
        let keys = if Kind::NODE.is_of(change) {
            self.take_node(change.object(), gone)
        } else if Kind::POD.is_of(change) {
            let Some(key) = Key::of(change.object()) else { return Vec::new() };
            let pod = change.object();
            let node = text(pod, "/spec/nodeName");
            if gone || node.is_empty() || has_ended(pod) || is_deleting(pod) {
                self.pods.remove(&key);
            } else {
                self.pods.insert(key.clone(), Bound { node: node.into(), pod: change.stored.clone() });
            }
            vec![key]
        } else {
            Vec::new()
        };
        keys.iter().for_each(|key| self.watch(key));
        keys
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let (Some(bound), Some(since)) = (self.pods.get(key), self.since.get(key)) else { return Plan::default() };
        let pod = &bound.pod.value();
        let Some(grace) = grace(pod, self.taints_of(bound)) else { return Plan::default() };
        let mut plan = Plan::of(&Kind::POD, pod);
        let passed = Duration::try_from(now.duration_since(*since)).unwrap_or_default();
        if let Some(left) = grace.checked_sub(passed).filter(|left| !left.is_zero()) {
            plan.requeue_after(left);
            return plan;
        }
        let target = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "lastTransitionTime": stamp(now), "observedGeneration": pod["metadata"]["generation"],
            "message": "Taint manager: deleting due to NoExecute taint",
        });
        let patch = json!({"status": {"conditions": with_condition(pod, target)}});
        plan.steps.push(Step::change_through(&Kind::POD, pod, "/status", patch));
        plan.event(false, "TaintManagerEviction", format!("Marking for deletion Pod {}/{}", key.namespace, key.name));
        plan.steps.push(Step::delete(&Kind::POD, pod));
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates_each_taint() {
        let taint = |key: &str| json!({"key": key, "effect": "NoExecute"});
        let check = |tolerations: Value, taints: &[Value], expect: Option<u64>| {
            let pod = json!({"spec": {"tolerations": tolerations}});
            assert_eq!(grace(&pod, taints), expect.map(Duration::from_secs), "{tolerations}");
        };
        let tolerate =
            |key: &str, seconds: Value| json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds});
        check(json!([]), &[], None);
        check(json!([]), &[taint("a")], Some(0));
        check(json!([tolerate("a", Value::Null)]), &[taint("a")], None);
        check(json!([tolerate("a", json!(30))]), &[taint("a")], Some(30));
        check(json!([tolerate("a", json!(-1))]), &[taint("a")], Some(0));
        check(json!([tolerate("a", json!(30))]), &[taint("a"), taint("b")], Some(0));
        let both = json!([tolerate("a", json!(30)), tolerate("b", json!(10))]);
        check(both, &[taint("a"), taint("b")], Some(10));
    }
}
