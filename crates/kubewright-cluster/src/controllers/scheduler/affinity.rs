//! The affinity and anti-affinity between pods. The rules and messages are those of kube-scheduler's plugin
//! `InterPodAffinity`
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity>).
//! Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    candidate::{Candidate, Peer},
    filter::Conflict,
    terms::{Domain, Namespaces, Term},
};

/// Why a node can't take a pod that wants to be beside others.
const AFFINITY: &str = "node(s) didn't match pod affinity rules";
/// Why a node can't take a pod that doesn't want to be beside others.
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
/// Why a node can't take a pod that others don't want beside them.
const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// The weight of a required term of a pod that is there, for those that it wants beside it (`hardPodAffinityWeight`).
const WEIGHT_OF_REQUIRED: i64 = 1;

/// Numbers by domain. Those that are zero are left out.
type Counts<'a> = BTreeMap<Domain<'a>, i64>;

/// The pods that the required terms of a pod select, and those whose terms keep it away, counted by domain.
#[derive(Clone, Debug, Default)]
pub(super) struct Affinity<'a> {
    /// Those that all terms of its affinity select.
    wanted: Counts<'a>,
    /// Those that a term of its anti-affinity selects.
    unwanted: Counts<'a>,
    /// Those that don't want the pod beside them.
    repelling: Counts<'a>,
}

impl<'a> Affinity<'a> {
    /// Adds a number to the counts of another pod: 1 for a pod that is there, and -1 for one that is removed.
    pub(super) fn count(&mut self, pod: &'a Candidate<'_>, peer: Peer<'a>, number: i64, namespaces: &Namespaces) {
        let terms = pod.terms();
        let is_selected = |term: &Term| selects(term, peer, namespaces);
        if terms.affinity.iter().all(is_selected) {
            for term in &terms.affinity {
                add(&mut self.wanted, term.domain(peer.node), number);
            }
        }
        for term in terms.anti_affinity.iter().filter(|term| is_selected(term)) {
            add(&mut self.unwanted, term.domain(peer.node), number);
        }
        for term in peer.pod.terms.anti_affinity.iter().filter(|term| selects_candidate(term, pod, namespaces)) {
            add(&mut self.repelling, term.domain(peer.node), number);
        }
    }

    /// Returns what the affinity of the pod has against a node, or the anti-affinity of others.
    pub(super) fn conflict(&self, pod: &Candidate<'_>, node: &Value, namespaces: &Namespaces) -> Option<Conflict> {
        let terms = pod.terms();
        if !terms.affinity.is_empty() && !self.has_company(pod, node, namespaces) {
            return Some(Conflict { reason: AFFINITY, is_final: true });
        }
        let is_unwanted = |term: &Term| term.domain(node).is_some_and(|domain| self.unwanted.contains_key(&domain));
        if terms.anti_affinity.iter().any(is_unwanted) {
            return Some(Conflict { reason: ANTI_AFFINITY, is_final: false });
        }
        let mut repelling = domains(node).filter(|domain| self.repelling.contains_key(domain));
        repelling.next().map(|_| Conflict { reason: EXISTING, is_final: false })
    }

    /// Returns whether a node satisfies the affinity of the pod. The first pod of a group that wants to be beside
    /// itself finds none.
    fn has_company(&self, pod: &Candidate<'_>, node: &Value, namespaces: &Namespaces) -> bool {
        let terms = &pod.terms().affinity;
        let is_met = |domain| self.wanted.is_empty() || self.wanted.contains_key(&domain);
        let is_first = self.wanted.is_empty();
        terms.iter().all(|term| term.domain(node).is_some_and(is_met))
            && (!is_first || terms.iter().all(|term| selects_candidate(term, pod, namespaces)))
    }
}

/// Returns how much the preferred terms of a pod, and all terms of the other pods but the required ones of their
/// anti-affinity, are in favour of each node, in percent.
pub(super) fn scores<'a>(
    pod: &'a Candidate<'_>,
    nodes: &[(&str, &Value)],
    peers: impl Iterator<Item = Peer<'a>>,
    namespaces: &Namespaces,
) -> Vec<i64> {
    let mut weights = Counts::new();
    for peer in peers {
        for (term, weight) in pod.terms().preferred.iter().filter(|(term, _)| selects(term, peer, namespaces)) {
            add(&mut weights, term.domain(peer.node), *weight);
        }
        let required = peer.pod.terms.affinity.iter().map(|term| (term, WEIGHT_OF_REQUIRED));
        let preferred = peer.pod.terms.preferred.iter().map(|(term, weight)| (term, *weight));
        for (term, weight) in required.chain(preferred).filter(|(term, _)| selects_candidate(term, pod, namespaces)) {
            add(&mut weights, term.domain(peer.node), weight);
        }
    }
    let sum =
        |node| domains(node).filter_map(|domain| weights.get(&domain)).fold(0_i64, |sum, one| sum.saturating_add(*one));
    let sums: Vec<_> = nodes.iter().map(|(_, node)| sum(node)).collect();
    let least = sums.iter().copied().min().unwrap_or_default();
    let range = sums.iter().copied().max().unwrap_or_default().saturating_sub(least);
    let share = |sum: i64| sum.saturating_sub(least).saturating_mul(100).checked_div(range).unwrap_or_default();
    sums.into_iter().map(share).collect()
}

/// Returns whether a term selects a pod that is there.
fn selects(term: &Term, peer: Peer<'_>, namespaces: &Namespaces) -> bool {
    term.selects(peer.namespace, |key| peer.pod.label(key), namespaces)
}

/// Returns whether a term selects the pod that waits.
fn selects_candidate(term: &Term, pod: &Candidate<'_>, namespaces: &Namespaces) -> bool {
    term.selects(pod.namespace(), |key| pod.label(key), namespaces)
}

/// Returns the domains of a node by all of its labels.
fn domains(node: &Value) -> impl Iterator<Item = Domain<'_>> {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((&**key, value.as_str()?)))
}

fn add<'a>(counts: &mut Counts<'a>, domain: Option<Domain<'a>>, number: i64) {
    if let Some(domain) = domain {
        let count = counts.entry(domain).or_default();
        *count = count.saturating_add(number);
        if *count == 0 {
            counts.remove(&domain);
        }
    }
}
