//! The annotation that tells a kubelet for how long it may use a Secret or ConfigMap that it has read, by the number of
//! nodes.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    reconcile::{Controller, Key, Plan, Step, keep},
};

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// For each step: below how many nodes the cluster goes back to the step before, above how many it goes on to the next
/// one, and the annotation's seconds. The steps overlap, so that a single node doesn't change all others back and
/// forth.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1_000, 30), (900, 2_000, 60), (1_800, usize::MAX, 300)];

/// Returns the step after a change of the number of nodes.
fn next_step(step: usize, nodes: usize) -> usize {
    let (least, most, _) = STEPS[step];
    match nodes {
        _ if nodes < least => step - 1,
        _ if nodes > most => step + 1,
        _ => step,
    }
}

/// The controller of the annotation. Its keys are nodes.
#[derive(Debug, Default)]
pub(crate) struct NodeTtl {
    nodes: BTreeMap<Key, Arc<Value>>,
    step: usize,
}

impl Controller for NodeTtl {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if !Kind::NODE.is_of(change) {
            return Vec::new();
        }
        let key = keep(&mut self.nodes, change.object(), change.kind == ChangeKind::Deleted);
        let step = next_step(self.step, self.nodes.len());
        if step == self.step {
            return vec![key];
        }
        self.step = step;
        self.nodes.keys().cloned().collect()
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(node) = self.nodes.get(key) else { return Plan::default() };
        let mut plan = Plan::of(&Kind::NODE, node);
        let seconds = STEPS[self.step].2;
        let present = node["metadata"]["annotations"][ANNOTATION].as_str().and_then(|text| text.parse().ok());
        if present != Some(seconds) {
            let patch = json!({"metadata": {"annotations": {ANNOTATION: seconds.to_string()}}});
            plan.steps.push(Step::Merge(Kind::NODE.address("", &key.name), "", patch));
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_node_changes_the_seconds_once() {
        let mut step = 0;
        for (nodes, seconds) in [(1, 0), (100, 0), (101, 15), (90, 15), (89, 0), (101, 15), (501, 30), (449, 15)] {
            step = next_step(step, nodes);
            assert_eq!(STEPS[step].2, seconds, "{nodes} nodes");
        }
    }

    #[test]
    fn an_annotation_that_is_right_is_not_written() {
        let mut controller = NodeTtl::default();
        for (name, value, writes) in [("a", json!("0"), false), ("b", json!("15"), true), ("c", Value::Null, true)] {
            let node = json!({"metadata": {"name": name, "annotations": {ANNOTATION: value}}});
            let key = keep(&mut controller.nodes, &Arc::new(node), false);
            let patch = json!({"metadata": {"annotations": {ANNOTATION: "0"}}});
            let expect = writes.then(|| Step::Merge(Kind::NODE.address("", name), "", patch));
            assert_eq!(controller.decide(&key, Timestamp::UNIX_EPOCH).steps, expect.into_iter().collect::<Vec<_>>());
        }
    }
}
