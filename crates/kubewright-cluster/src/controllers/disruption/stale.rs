//! Pods that were to be evicted, and weren't: their condition `DisruptionTarget` becomes false.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use crate::controllers::{
    kind::Kind,
    pod::has_ended,
    reconcile::{Controller, Key, Plan, Step},
    value::{condition, is_deleting, list, stamp, text, time},
};

/// The condition of pods that are to be evicted.
const TARGET: &str = "DisruptionTarget";
/// The time within which the deletion of such a pod begins.
const TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// The controller of the condition.
#[derive(Debug, Default)]
pub(crate) struct StaleDisruptions {
    pods: BTreeMap<Key, Arc<Value>>,
}

/// Returns whether a pod that isn't being deleted has the condition. One set by the kubelet remains.
fn is_target(pod: &Value) -> bool {
    let target = condition(pod, TARGET)
        .is_some_and(|target| target["status"] == "True" && target["reason"] != "TerminationByKubelet");
    target && !is_deleting(pod) && !has_ended(pod)
}

impl Controller for StaleDisruptions {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if !Kind::POD.is_of(change) {
            return Vec::new();
        }
        let ends = change.kind == ChangeKind::Deleted || !is_target(change.object());
        if ends && self.pods.is_empty() {
            return Vec::new();
        }
        let Some(key) = Key::of(change.object()) else { return Vec::new() };
        if ends {
            self.pods.remove(&key);
            return Vec::new();
        }
        self.pods.insert(key.clone(), change.object().clone());
        vec![key]
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(pod) = self.pods.get(key) else { return Plan::default() };
        let mut plan = Plan::of(&Kind::POD, pod);
        let since = condition(pod, TARGET).and_then(|target| time(target, "/lastTransitionTime")).unwrap_or(now);
        let rest = TIMEOUT - now.duration_since(since);
        if rest.is_positive() {
            plan.requeue_after(Duration::try_from(rest).unwrap_or_default());
            return plan;
        }
        let conditions: Vec<_> = list(pod, "/status/conditions").iter().map(|one| cleared(one, now)).collect();
        let metadata = &pod["metadata"];
        let precondition = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
        let path = Kind::POD.address(&key.namespace, text(pod, "/metadata/name"));
        let patch = json!({"metadata": precondition, "status": {"conditions": conditions}});
        plan.steps.push(Step::Merge(path, "/status", patch));
        plan
    }
}

fn cleared(condition: &Value, now: Timestamp) -> Value {
    if condition["type"] != TARGET {
        return condition.clone();
    }
    json!({"type": TARGET, "status": "False", "lastProbeTime": null, "lastTransitionTime": stamp(now)})
}
