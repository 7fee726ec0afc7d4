//! Replica sets, and replication controllers, which are their older form.

mod rank;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Map, Value, json};

use super::{
    controller_refs::ControllerRefs,
    kind::Kind,
    objects::Objects,
    pod::{from_template, has_ended, is_active, is_ready, until_available},
    reconcile::{Controller, Key, Plan, Step, StepKind},
    value::{condition, int, is_deleting, list, stamp, text},
};

/// The kind `ReplicaSet`.
pub(crate) const REPLICA_SET: Kind = Kind { group: "apps", kind: "ReplicaSet", plural: "replicasets" };

/// The kind `ReplicationController`.
pub(crate) const REPLICATION_CONTROLLER: Kind =
    Kind { group: "", kind: "ReplicationController", plural: "replicationcontrollers" };

/// The maximum number of pods that one plan creates or deletes.
const BURST: usize = 500;

/// The controller of replica sets, or of replication controllers.
#[derive(Debug)]
pub(crate) struct ReplicaSets {
    kind: Kind,
    refs: ControllerRefs,
    /// The most recent failures to create or delete pods.
    failures: BTreeMap<Key, (StepKind, String)>,
}

impl ReplicaSets {
    /// Creates the controller of a kind. `pods` include each pod before its change is taken.
    pub(crate) fn new(kind: Kind, pods: Objects) -> Self {
        Self { kind, refs: ControllerRefs::of_pods(kind, pods), failures: BTreeMap::new() }
    }
}

impl Controller for ReplicaSets {
    fn reset(&mut self) {
        self.refs.reset();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        let keys = self.refs.take(change);
        if self.kind.is_of(change) && change.kind == ChangeKind::Deleted {
            self.failures.retain(|key, _| !keys.contains(key));
        }
        keys
    }

    fn decide(&self, key: &Key, now: Timestamp) -> Plan {
        let Some(set) = self.refs.parent(key) else { return Plan::default() };
        let claim = self.refs.claim(key, set);
        let mut plan = Plan::of(&self.kind, set);
        plan.steps = claim.steps;
        let failure = self.failures.get(key).map(|(sort, message)| (*sort, message.as_str()));
        decide(&self.kind, set, &claim.children, failure, now, &mut plan);
        plan
    }

    fn finished(&mut self, key: &Key, failure: Option<(StepKind, String)>) {
        match failure {
            Some((sort, message)) if sort != StepKind::Other => {
                self.failures.insert(key.clone(), (sort, message));
            }
            Some(_) => {}
            None => {
                self.failures.remove(key);
            }
        }
    }
}

/// Decides the steps for a replica set: its status, and more or fewer pods. The status comes first, so that a
/// persistent failure is reported.
fn decide(
    kind: &Kind,
    set: &Value,
    pods: &[Arc<Value>],
    failure: Option<(StepKind, &str)>,
    now: Timestamp,
    plan: &mut Plan,
) {
    let active: Vec<&Value> = pods.iter().map(|pod| &**pod).filter(|pod| is_active(pod)).collect();
    let wanted = usize::try_from(int(set, "/spec/replicas")).unwrap_or_default();
    let failure = failure.filter(|_| active.len() != wanted);
    let terminating = pods.iter().filter(|pod| is_deleting(pod) && !has_ended(pod)).count();
    let mut status = status(set, &active, failure, now, plan);
    // The older kind has no such field.
    if !kind.group.is_empty() {
        status["terminatingReplicas"] = terminating.into();
    }
    plan.steps.extend(Step::status(kind, set, status));
    if is_deleting(set) {
        return;
    }
    if active.len() < wanted {
        let pod = from_template(&set["spec"]["template"], set, &kind.api_version(), kind.kind);
        plan.steps.push(Step::CreatePods(vec![pod; (wanted - active.len()).min(BURST)]));
    } else if active.len() > wanted {
        let surplus = (active.len() - wanted).min(BURST);
        let chosen = rank::first_to_go(&active, surplus);
        let named = |pod: &&Value| (text(pod, "/metadata/name").into(), text(pod, "/metadata/uid").into());
        plan.steps.push(Step::DeletePods(chosen.iter().map(named).collect()));
    }
}

fn status(set: &Value, active: &[&Value], failure: Option<(StepKind, &str)>, now: Timestamp, plan: &mut Plan) -> Value {
    let least = int(set, "/spec/minReadySeconds");
    let mut available = 0;
    for delay in active.iter().filter_map(|pod| until_available(pod, least, now)) {
        if delay.is_zero() {
            available += 1;
        } else {
            plan.requeue_after(delay);
        }
    }
    let template = set.pointer("/spec/template/metadata/labels").and_then(Value::as_object);
    let is_full = |pod: &Value| {
        let wanted = template.into_iter().flatten();
        wanted.into_iter().all(|(key, value)| pod["metadata"]["labels"].get(key) == Some(value))
    };
    let mut status = Map::new();
    status.insert("replicas".into(), active.len().into());
    let counts = [
        ("fullyLabeledReplicas", active.iter().filter(|pod| is_full(pod)).count()),
        ("readyReplicas", active.iter().filter(|pod| is_ready(pod)).count()),
        ("availableReplicas", available),
    ];
    for (field, count) in counts {
        // Zeros are omitted, as in the API types of Kubernetes.
        if count > 0 {
            status.insert(field.into(), count.into());
        }
    }
    status.insert("observedGeneration".into(), int(set, "/metadata/generation").into());
    let mut conditions: Vec<_> =
        list(set, "/status/conditions").iter().filter(|one| one["type"] != "ReplicaFailure").cloned().collect();
    if let Some((sort, message)) = failure {
        let reason = if sort == StepKind::Delete { "FailedDelete" } else { "FailedCreate" };
        // Kubernetes keeps the condition of the first failure, too. Each attempt's message names another pod: updating
        // it would change the replica set, and so cause the next attempt without a delay.
        conditions.push(condition(set, "ReplicaFailure").cloned().unwrap_or_else(|| {
            json!({
                "type": "ReplicaFailure", "status": "True", "reason": reason, "message": message, "lastTransitionTime": stamp(now),
            })
        }));
    }
    if !conditions.is_empty() {
        status.insert("conditions".into(), conditions.into());
    }
    status.into()
}
