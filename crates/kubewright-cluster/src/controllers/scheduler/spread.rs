//! The topology spread constraints of pods. The rules and messages are those of kube-scheduler's plugin
//! `PodTopologySpread` (<https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/>). Pure.

use std::collections::BTreeMap;

use kubewright_apimachinery::selector::LabelSelector;
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

/// The topology key whose domains are single nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The soft constraints of pods without constraints of their own, with the skew that is tolerated.
const DEFAULTS: [(&str, i64); 2] = [(HOSTNAME, 3), ("topology.kubernetes.io/zone", 5)];

/// Returns the hard constraints of a pod (`whenUnsatisfiable: DoNotSchedule`).
pub(super) fn hard(pod: &Value) -> impl Iterator<Item = &Value> {
    constraints(pod, "DoNotSchedule")
}

fn constraints<'a>(pod: &'a Value, effect: &'static str) -> impl Iterator<Item = &'a Value> {
    let constraints = list(pod, "/spec/topologySpreadConstraints").iter();
    constraints.filter(move |constraint| text(constraint, "/whenUnsatisfiable") == effect)
}

/// A constraint of a pod.
#[derive(Clone, Debug)]
struct Constraint<'a> {
    key: &'a str,
    max_skew: i64,
    selector: LabelSelector,
    /// Whether nodes count that the pod doesn't select.
    ignores_affinity: bool,
    /// Whether nodes don't count whose taints the pod doesn't tolerate.
    honors_taints: bool,
}

impl<'a> Constraint<'a> {
    fn new(rules: &'a Value) -> Self {
        Self {
            key: text(rules, "/topologyKey"),
            max_skew: int(rules, "/maxSkew"),
            selector: selector(rules, "/labelSelector"),
            ignores_affinity: text(rules, "/nodeAffinityPolicy") == "Ignore",
            honors_taints: text(rules, "/nodeTaintsPolicy") == "Honor",
        }
    }

    /// Returns the domain of a node.
    fn domain<'b>(&self, node: &'b Value) -> Option<&'b str> {
        node["metadata"]["labels"][self.key].as_str()
    }

    /// Returns whether a node counts by the policies.
    fn includes(&self, pod: &Value, node: &Value) -> bool {
        (self.ignores_affinity || is_selected(pod, node))
            && (!self.honors_taints || untolerated_taint(pod, node).is_none())
    }

    /// Returns whether another pod of the same namespace counts. As in Kubernetes, none does for an empty selector.
    fn counts(&self, peer: Peer<'_>) -> bool {
        !peer.pod.is_deleting && !self.selector.is_empty() && self.selector.matches(|key| peer.pod.label(key))
    }
}

/// A hard constraint with the numbers of pods in its domains.
#[derive(Clone, Debug)]
struct HardConstraint<'a> {
    constraint: Constraint<'a>,
    min_domains: i64,
    /// One if the constraint selects the pod itself.
    own: i64,
    /// The number of pods in each domain.
    domains: BTreeMap<&'a str, i64>,
    /// The smallest of these numbers.
    least: i64,
}

impl HardConstraint<'_> {
    fn update_least(&mut self) {
        let is_sparse = i64::try_from(self.domains.len()).unwrap_or(i64::MAX) < self.min_domains;
        let least = self.domains.values().copied().min().unwrap_or(i64::from(i32::MAX));
        self.least = if is_sparse { 0 } else { least };
    }
}

/// The hard constraints of a pod, with the numbers of pods in their domains.
#[derive(Clone, Debug, Default)]
pub(super) struct HardConstraints<'a>(Vec<HardConstraint<'a>>);

impl<'a> HardConstraints<'a> {
    /// Counts the pods of the namespace.
    pub(super) fn new(
        pod: &Candidate<'a>,
        nodes: impl Iterator<Item = &'a Value>,
        peers: impl Iterator<Item = Peer<'a>>,
    ) -> Self {
        let spread = |rules: &'a Value| {
            let constraint = Constraint::new(rules);
            let own = i64::from(constraint.selector.matches(|key| pod.label(key)));
            let min_domains = number(rules, "/minDomains").unwrap_or(1);
            HardConstraint { constraint, min_domains, own, domains: BTreeMap::new(), least: 0 }
        };
        let mut all = Self(hard(pod.object).map(spread).collect());
        if all.0.is_empty() {
            return all;
        }
        for node in nodes.filter(|node| all.place(node)).collect::<Vec<_>>() {
            for spread in &mut all.0 {
                if let Some(domain) =
                    spread.constraint.domain(node).filter(|_| spread.constraint.includes(pod.object, node))
                {
                    spread.domains.insert(domain, 0);
                }
            }
        }
        for peer in peers {
            all.add(pod, peer, 1);
        }
        all.0.iter_mut().for_each(HardConstraint::update_least);
        all
    }

    /// Returns whether a node is in a domain of each constraint. Others don't count.
    fn place(&self, node: &Value) -> bool {
        self.0.iter().all(|spread| spread.constraint.domain(node).is_some())
    }

    fn add(&mut self, pod: &Candidate<'_>, peer: Peer<'_>, number: i64) {
        if !self.place(peer.node) {
            return;
        }
        for HardConstraint { constraint, domains, .. } in &mut self.0 {
            if constraint.counts(peer)
                && constraint.includes(pod.object, peer.node)
                && let Some(count) = constraint.domain(peer.node).and_then(|domain| domains.get_mut(domain))
            {
                *count += number;
            }
        }
    }

    /// Adds a number to the counts of another pod: 1 for a pod that is there, and -1 for one that is removed.
    pub(super) fn count(&mut self, pod: &Candidate<'_>, peer: Peer<'_>, number: i64) {
        if !self.0.is_empty() && peer.namespace == pod.namespace() {
            self.add(pod, peer, number);
            self.0.iter_mut().for_each(HardConstraint::update_least);
        }
    }

    /// Returns what the constraints have against a node.
    pub(super) fn conflict(&self, node: &Value) -> Option<Conflict> {
        self.0.iter().find_map(|spread| {
            let Some(here) = spread.constraint.domain(node) else {
                return Some(Conflict { reason: NO_LABEL, is_final: true });
            };
            let count = spread.domains.get(here).copied().unwrap_or_default();
            let skew = count + spread.own - spread.least;
            (skew > spread.constraint.max_skew).then_some(Conflict { reason: SKEW, is_final: false })
        })
    }
}

/// Returns how well each node meets the soft constraints of a pod (`whenUnsatisfiable: ScheduleAnyway`), in percent;
/// `None` for a pod without. A pod without any constraints has Kubernetes' defaults for the pods that `group` selects:
/// those of its services and of its owner.
pub(super) fn scores<'a, P: Iterator<Item = Peer<'a>>>(
    pod: &Candidate<'_>,
    nodes: &[(&str, &'a Value)],
    peers: impl Fn() -> P,
    group: impl FnOnce() -> Option<LabelSelector>,
) -> Option<Vec<i64>> {
    let has_own = !list(pod.object, "/spec/topologySpreadConstraints").is_empty();
    let soft: Vec<_> = match has_own {
        true => constraints(pod.object, "ScheduleAnyway").map(Constraint::new).collect(),
        false => group().into_iter().flat_map(|group| defaults(&group)).collect(),
    };
    if soft.is_empty() {
        return None;
    }
    // Only the defaults count nodes that aren't in a domain of each constraint.
    let is_scored = |node: &Value| !has_own || soft.iter().all(|one| one.domain(node).is_some());
    let scored: Vec<_> = nodes.iter().map(|(_, node)| *node).filter(|node| is_scored(node)).collect();
    let mut sums = vec![0.0; scored.len()];
    for constraint in &soft {
        let peers = peers().filter(|peer| is_scored(peer.node));
        let counts = counts(constraint, pod, &scored, peers);
        let size = if constraint.key == HOSTNAME { scored.len() } else { counts.len() };
        // The weight of a domain grows with the number of domains.
        let weight = (size as f64 + 2.0).ln();
        for (node, sum) in scored.iter().zip(&mut sums) {
            if let Some(count) = constraint.domain(node).and_then(|domain| counts.get(domain)) {
                *sum += *count as f64 * weight + (constraint.max_skew - 1) as f64;
            }
        }
    }
    let sums: Vec<_> = sums.into_iter().map(|sum| sum.round() as i64).collect();
    let (least, greatest) = (sums.iter().min().copied()?, sums.iter().max().copied()?);
    let mut shares = sums.into_iter().map(|sum| (100 * (greatest + least - sum)).checked_div(greatest).unwrap_or(100));
    Some(nodes.iter().map(|(_, node)| if is_scored(node) { shares.next().unwrap_or_default() } else { 0 }).collect())
}

/// Returns the soft constraints of a pod without constraints of its own.
fn defaults(group: &LabelSelector) -> [Constraint<'static>; DEFAULTS.len()] {
    DEFAULTS.map(|(key, max_skew)| {
        let selector = group.clone();
        Constraint { key, max_skew, selector, ignores_affinity: false, honors_taints: false }
    })
}

/// Returns the number of pods that a soft constraint counts in each domain of some nodes. Nodes without a domain are
/// together.
fn counts<'a>(
    constraint: &Constraint<'_>,
    pod: &Candidate<'_>,
    nodes: &[&'a Value],
    peers: impl Iterator<Item = Peer<'a>>,
) -> BTreeMap<&'a str, i64> {
    let domain = |node| constraint.domain(node).unwrap_or_default();
    let mut counts: BTreeMap<_, _> = nodes.iter().map(|node| (domain(node), 0)).collect();
    for peer in peers.filter(|peer| constraint.counts(*peer)) {
        let is_included = constraint.key == HOSTNAME || constraint.includes(pod.object, peer.node);
        if let Some(count) = counts.get_mut(domain(peer.node)).filter(|_| is_included) {
            *count += 1;
        }
    }
    counts
}
