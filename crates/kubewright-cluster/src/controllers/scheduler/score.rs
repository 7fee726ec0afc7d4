//! Which of the nodes that would do is the best for a pod. The rules are those of kube-scheduler's plugins `TaintToleration`,
//! `NodeAffinity` and `NodeResourcesFit`, with their weights. Pure.

use serde_json::Value;

use super::{
    candidate::Candidate,
    filter::{is_tolerated, meets},
    fit::Requested,
};
use crate::controllers::value::{int, list, text};

/// The score of a node that is best in one respect.
const BEST: i64 = 100;
const WEIGHT_OF_TAINTS: i64 = 3;
const WEIGHT_OF_AFFINITY: i64 = 2;

/// Returns the first node with the highest score; `None` for an empty list of nodes. `requested` returns the sums of the requests of the pods on a
/// node.
pub(super) fn best<'a, 'b>(
    pod: &Candidate<'_>,
    nodes: &[(&'a str, &Value)],
    requested: impl Fn(&str) -> Option<&'b Requested>,
) -> Option<&'a str> {
    let none = Requested::default();
    let taints = shares(nodes, |node| untolerated_soft_taints(pod.object, node)).map(|share| BEST - share);
    let affinity = shares(nodes, |node| preference_weight(pod.object, node));
    let free = nodes.iter().map(|(name, node)| requested(name).unwrap_or(&none).free_share(&pod.taken.requests, node));
    let scores = taints
        .zip(affinity)
        .zip(free)
        .map(|((taints, affinity), free)| taints * WEIGHT_OF_TAINTS + affinity * WEIGHT_OF_AFFINITY + free);
    let mut best: Option<(i64, &str)> = None;
    for ((name, _), score) in nodes.iter().zip(scores) {
        if best.is_none_or(|(highest, _)| score > highest) {
            best = Some((score, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Returns a number for each node, in percent of the greatest one.
fn shares(nodes: &[(&str, &Value)], number: impl Fn(&Value) -> i64) -> impl Iterator<Item = i64> {
    let numbers: Vec<_> = nodes.iter().map(|(_, node)| number(node)).collect();
    let greatest = numbers.iter().copied().max().unwrap_or_default();
    numbers.into_iter().map(move |number| number.saturating_mul(BEST).checked_div(greatest).unwrap_or_default())
}

/// Returns the number of taints of a node that a pod would rather avoid.
fn untolerated_soft_taints(pod: &Value, node: &Value) -> i64 {
    let soft = |taint: &&Value| text(taint, "/effect") == "PreferNoSchedule" && !is_tolerated(pod, taint);
    i64::try_from(list(node, "/spec/taints").iter().filter(soft).count()).unwrap_or(i64::MAX)
}

/// Returns the sum of the weights of the preferences of a pod that a node meets.
fn preference_weight(pod: &Value, node: &Value) -> i64 {
    let preferred = list(pod, "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution").iter();
    let met = preferred.filter(|one| meets(node, &one["preference"]));
    met.fold(0, |sum, one| sum.saturating_add(int(one, "/weight")))
}
