//! The hard topology spread constraints of pods (`whenUnsatisfiable: DoNotSchedule`). The rules and messages are those of
//! kube-scheduler's plugin `PodTopologySpread`
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/>). Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    candidate::{Candidate, Peer},
    filter::{Conflict, is_selected, untolerated_taint},
};
use crate::controllers::value::{int, list, number, selector, text};

/// Why a node can't take a pod that would make the skew too large.
const SKEW: &str = "node(s) didn't match pod topology spread constraints";
/// Why a node that isn't in any domain can't take a pod.
const NO_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

/// Returns the hard constraints of a pod.
pub(super) fn constraints(pod: &Value) -> impl Iterator<Item = &Value> + Clone {
    let constraints = list(pod, "/spec/topologySpreadConstraints").iter();
    constraints.filter(|constraint| text(constraint, "/whenUnsatisfiable") == "DoNotSchedule")
}

/// Returns what the constraints of a pod have against a node.
pub(super) fn conflict<'a, I: Iterator<Item = Peer<'a>>>(
    pod: &Candidate<'_>,
    node: &Value,
    nodes: impl Iterator<Item = &'a Value> + Clone,
    peers: impl Fn() -> I,
) -> Option<Conflict> {
    let all = constraints(pod.object);
    // Only nodes that are in a domain of each constraint count.
    let is_placed = |node: &&Value| all.clone().all(|one| domain(node, one).is_some());
    for constraint in all.clone() {
        let Some(here) = domain(node, constraint) else {
            return Some(Conflict { reason: NO_LABEL, is_final: true });
        };
        let counts = |node: &&Value| is_placed(node) && is_included(pod.object, node, constraint);
        let mut domains: BTreeMap<&str, i64> =
            nodes.clone().filter(counts).filter_map(|node| Some((domain(node, constraint)?, 0))).collect();
        let labels = selector(constraint, "/labelSelector");
        for peer in peers() {
            let is_counted = peer.namespace == pod.namespace() && !peer.pod.is_deleting && counts(&peer.node);
            if is_counted
                && labels.matches(|key| peer.pod.label(key))
                && let Some(count) = domain(peer.node, constraint).and_then(|domain| domains.get_mut(domain))
            {
                *count += 1;
            }
        }
        let wanted = number(constraint, "/minDomains").unwrap_or(1);
        let is_sparse = i64::try_from(domains.len()).unwrap_or(i64::MAX) < wanted;
        let least = if is_sparse { 0 } else { domains.values().copied().min().unwrap_or(i64::from(i32::MAX)) };
        let own = i64::from(labels.matches(|key| pod.label(key)));
        if domains.get(here).copied().unwrap_or_default() + own - least > int(constraint, "/maxSkew") {
            return Some(Conflict { reason: SKEW, is_final: false });
        }
    }
    None
}

/// Returns the domain of a node.
fn domain<'a>(node: &'a Value, constraint: &Value) -> Option<&'a str> {
    node["metadata"]["labels"][text(constraint, "/topologyKey")].as_str()
}

/// Returns whether a node counts for a constraint by its policies.
fn is_included(pod: &Value, node: &Value, constraint: &Value) -> bool {
    let affinity = text(constraint, "/nodeAffinityPolicy") == "Ignore" || is_selected(pod, node);
    let taints = text(constraint, "/nodeTaintsPolicy") != "Honor" || untolerated_taint(pod, node).is_none();
    affinity && taints
}
