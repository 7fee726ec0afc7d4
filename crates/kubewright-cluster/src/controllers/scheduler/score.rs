//! Which of the nodes that would do is the best for a pod. The rules are those of kube-scheduler's plugins
//! `TaintToleration`, `NodeAffinity`, `PodTopologySpread`, `InterPodAffinity`, `DynamicResources`, `NodeResourcesFit`,
//! `NodeResourcesBalancedAllocation` and `ImageLocality` ([`images`]), with their weights. Pure.

use serde_json::Value;

use super::{
    affinity,
    candidate::Candidate,
    filter::{is_tolerated, meets},
    fit::Requested,
    images, spread,
    state::{ClusterState, Relations},
};
use crate::controllers::value::{int, list, text};

/// The score of a node that is best in one respect.
const BEST: i64 = 100;
const WEIGHT_OF_TAINTS: i64 = 3;
const WEIGHT_OF_AFFINITY: i64 = 2;
const WEIGHT_OF_SPREAD: i64 = 2;
const WEIGHT_OF_OTHER_PODS: i64 = 2;
const WEIGHT_OF_DEVICES: i64 = 2;
const WEIGHT_OF_IMAGES: i64 = 1;

/// Returns the first node with the highest score; `None` for an empty list of nodes.
pub(super) fn best<'a>(
    pod: &Candidate<'_>,
    nodes: &[(&'a str, &Value)],
    state: &ClusterState,
    relations: &Relations<'_>,
) -> Option<&'a str> {
    if let &[] | &[_] = nodes {
        return nodes.first().map(|(name, _)| *name);
    }
    let mut scores = fits(pod, nodes, state);
    let mut add =
        |weight, shares: Vec<i64>| scores.iter_mut().zip(shares).for_each(|(score, share)| *score += weight * share);
    let taints = shares(nodes, |node| untolerated_soft_taints(pod.object, node));
    add(WEIGHT_OF_TAINTS, taints.map(|share| BEST - share).collect());
    add(WEIGHT_OF_AFFINITY, shares(nodes, |node| preference_weight(pod.object, node)).collect());
    let group = || state.groups.selector(pod);
    if let Some(shares) = spread::scores(pod, nodes, || state.peers_in(pod.namespace()), group) {
        add(WEIGHT_OF_SPREAD, shares);
    }
    let other_pods = match pod.terms().preferred.is_empty() {
        true => affinity::scores(pod, nodes, state.peers_with_terms(), &state.namespaces),
        false => affinity::scores(pod, nodes, state.peers(), &state.namespaces),
    };
    add(WEIGHT_OF_OTHER_PODS, other_pods);
    add(WEIGHT_OF_DEVICES, shares(nodes, |node| state.devices.score(pod, relations.demand(), node)).collect());
    add(WEIGHT_OF_IMAGES, images::scores(pod.object, nodes, state.nodes.values().map(|node| &**node)));
    let mut best: Option<(i64, &str)> = None;
    for ((name, _), score) in nodes.iter().zip(scores) {
        if best.is_none_or(|(highest, _)| score > highest) {
            best = Some((score, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Returns how much of each node would be free, and how evenly its resources would be requested.
fn fits(pod: &Candidate<'_>, nodes: &[(&str, &Value)], state: &ClusterState) -> Vec<i64> {
    let (none, wanted) = (Requested::default(), &pod.taken.requests);
    let score = |(name, node): &(&str, &Value)| {
        let requested = state.requested(name).unwrap_or(&none);
        requested.free_share(wanted, node) + requested.balance(wanted, node)
    };
    nodes.iter().map(score).collect()
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
