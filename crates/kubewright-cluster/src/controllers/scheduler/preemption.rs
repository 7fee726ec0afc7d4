//! The pods that have to go so that one of higher priority fits. The rules and messages are those of kube-scheduler's
//! plugin `DefaultPreemption`
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/#preemption>). Pure.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    candidate::{Candidate, Occupant, PodKey},
    state::{ClusterState, Trial},
};
use crate::controllers::{
    reconcile::Key,
    value::{int, selector},
};

/// Why there are no victims if other pods aren't in the way.
pub(super) const UNHELPFUL: &str = "1 Preemption is not helpful for scheduling";
/// Why there are no victims if no pod has a lower priority.
const NO_VICTIMS: &str = "1 No preemption victims found for incoming pod";

/// Returns the pods of the node that have to go for a pod: as few as possible and the least important ones, and those that
/// a budget protects only if nothing else helps.
///
/// # Errors
/// Returns Kubernetes' reasons if the pod doesn't fit, whatever goes.
pub(super) fn victims<'a>(
    pod: &Candidate<'_>,
    node: &Value,
    state: &'a ClusterState,
    mut trial: Trial<'a>,
) -> Result<Vec<&'a PodKey>, String> {
    let mut potential: Vec<_> = state.on_node().filter(|(_, other)| other.priority < pod.taken.priority).collect();
    if potential.is_empty() {
        return Err(NO_VICTIMS.to_owned());
    }
    for (key, other) in &potential {
        trial.remove(key, other);
    }
    if let Some(obstacle) = trial.obstacle(pod, node) {
        return Err(obstacle.reasons);
    }
    potential.sort_by_key(|(_, other)| importance(other));
    let (protected, others): (Vec<_>, Vec<_>) = by_protection(potential, &state.budgets);
    let mut victims = Vec::new();
    for (key, other) in protected.into_iter().chain(others) {
        trial.restore(key, other);
        if trial.obstacle(pod, node).is_some() {
            trial.remove(key, other);
            victims.push(key);
        }
    }
    if victims.is_empty() { Err(NO_VICTIMS.to_owned()) } else { Ok(victims) }
}

/// Orders pods by importance, most important first. A pod that hasn't started is less important than one that has.
fn importance(pod: &Occupant) -> (Reverse<i64>, Timestamp) {
    (Reverse(pod.priority), pod.started.unwrap_or(Timestamp::MAX))
}

/// A pod and its identity.
type Entry<'a> = (&'a PodKey, &'a Occupant);

/// Divides pods into those whose budgets don't allow another disruption, in this order, and the others.
fn by_protection<'a>(pods: Vec<Entry<'a>>, budgets: &BTreeMap<Key, Arc<Value>>) -> (Vec<Entry<'a>>, Vec<Entry<'a>>) {
    let mut allowed: BTreeMap<&Key, i64> =
        budgets.iter().map(|(key, budget)| (key, int(budget, "/status/disruptionsAllowed"))).collect();
    pods.into_iter().partition(|(key, pod)| {
        let mut is_protected = false;
        for (budget_key, budget) in budgets.range(Key::first_of(&key.namespace)..) {
            if budget_key.namespace != key.namespace {
                break;
            }
            let labels = selector(budget, "/spec/selector");
            let is_selected = !labels.is_empty() && labels.matches(|key| pod.label(key));
            // The API server has counted the evictions that it has recorded.
            let is_counted = !budget["status"]["disruptedPods"][&key.name].is_null();
            if is_selected
                && !is_counted
                && let Some(left) = allowed.get_mut(budget_key)
            {
                *left -= 1;
                is_protected |= *left < 0;
            }
        }
        is_protected
    })
}
