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
    value::{int, selector, text},
};

/// Why there are no victims if other pods aren't in the way.
pub(super) const UNHELPFUL: &str = "Preemption is not helpful for scheduling";
/// Why there are no victims if no pod has a lower priority.
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// The pods of a node that are evicted in favour of another pod.
#[derive(Debug)]
pub(super) struct Victims<'a> {
    pub(super) pods: Vec<&'a PodKey>,
    cost: Cost,
}

/// The cost of an eviction of pods of a node. Costs are compared in this order: how many are protected, the highest
/// priority, the sum of priorities (each above the lowest possible one), the number of pods, and how long the most
/// important ones have run.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost(usize, i64, i64, usize, Reverse<Timestamp>);

impl Victims<'_> {
    /// Returns whether the eviction of these pods costs less than that of others.
    pub(super) fn are_cheaper_than(&self, other: &Self) -> bool {
        self.cost < other.cost
    }
}

/// Returns the pods of a node that have to go for a pod: as few as possible and the least important ones, and those
/// that a budget protects only if nothing else helps.
///
/// # Errors
/// Returns Kubernetes' reasons if the pod doesn't fit, whatever goes.
pub(super) fn victims<'a: 'b, 'b>(
    pod: &Candidate<'_>,
    node: &Value,
    state: &'a ClusterState,
    mut trial: Trial<'b>,
) -> Result<Victims<'a>, Vec<String>> {
    let on_node = state.on_node(text(node, "/metadata/name"));
    let mut potential: Vec<_> = on_node.filter(|(_, other)| other.priority < pod.taken.priority).collect();
    if potential.is_empty() {
        return Err(vec![NO_VICTIMS.to_owned()]);
    }
    for (key, other) in &potential {
        trial.remove(key, other);
    }
    if let Some(obstacle) = trial.obstacle(node) {
        return Err(obstacle.reasons);
    }
    potential.sort_by_key(|(_, other)| importance(other));
    let (protected, others): (Vec<_>, Vec<_>) = by_protection(potential, &state.budgets);
    let protected = protected.into_iter().map(|entry| (entry, 1));
    let (mut victims, mut violations) = (Vec::new(), 0);
    for ((key, other), is_protected) in protected.chain(others.into_iter().map(|entry| (entry, 0))) {
        trial.restore(key, other);
        if trial.obstacle(node).is_some() {
            trial.remove(key, other);
            victims.push((key, other));
            violations += is_protected;
        }
    }
    let cost = cost(&victims, violations).ok_or_else(|| vec![NO_VICTIMS.to_owned()])?;
    Ok(Victims { pods: victims.into_iter().map(|(key, _)| key).collect(), cost })
}

/// Returns the cost of an eviction of pods; `None` for an empty list.
fn cost(victims: &[Entry<'_>], violations: usize) -> Option<Cost> {
    let highest = victims.iter().map(|(_, pod)| pod.priority).max()?;
    let sum = victims.iter().map(|(_, pod)| pod.priority.saturating_sub(i64::from(i32::MIN)));
    let most_important = victims.iter().filter(|(_, pod)| pod.priority == highest);
    let earliest = most_important.map(|(_, pod)| pod.started.unwrap_or(Timestamp::MAX)).min()?;
    Some(Cost(violations, highest, sum.fold(0, i64::saturating_add), victims.len(), Reverse(earliest)))
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
