//! The required affinity and anti-affinity between pods. The rules and messages are those of kube-scheduler's plugin
//! `InterPodAffinity`
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity>).
//! Pure.

use serde_json::Value;

use super::{
    candidate::{Candidate, Peer},
    filter::Conflict,
    terms::{Namespaces, Term},
};

/// Why a node can't take a pod that wants to be beside others.
const AFFINITY: &str = "node(s) didn't match pod affinity rules";
/// Why a node can't take a pod that doesn't want to be beside others.
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
/// Why a node can't take a pod that others don't want beside them.
const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// Returns what the affinity of a pod, of which `peers` are the others, has against a node, or that of the `repelling`
/// peers, which have an anti-affinity.
pub(super) fn conflict<'a, I: Iterator<Item = Peer<'a>>, R: Iterator<Item = Peer<'a>>>(
    pod: &Candidate<'_>,
    node: &Value,
    peers: impl Fn() -> I,
    repelling: impl FnOnce() -> R,
    namespaces: &Namespaces,
) -> Option<Conflict> {
    let selects = |term: &Term, peer: &Peer<'_>| term.selects(peer.namespace, |key| peer.pod.label(key), namespaces);
    if !pod.affinity.is_empty() && !has_company(pod, node, peers(), namespaces) {
        return Some(Conflict { reason: AFFINITY, is_final: true });
    }
    let anti_affinity = &pod.taken.anti_affinity;
    let meets = |term: &Term| peers().any(|peer| term.joins(node, peer.node) && selects(term, &peer));
    if anti_affinity.iter().any(meets) {
        return Some(Conflict { reason: ANTI_AFFINITY, is_final: false });
    }
    let repels = |peer: Peer<'a>| {
        let anti_affinity = peer.pod.anti_affinity.iter();
        let mut there = anti_affinity.filter(|term| term.joins(node, peer.node));
        there.any(|term| term.selects(pod.namespace(), |key| pod.label(key), namespaces))
    };
    repelling().any(repels).then_some(Conflict { reason: EXISTING, is_final: false })
}

/// Returns whether a node satisfies a pod's affinity. The first pod of a group that wants to be beside itself finds none.
fn has_company<'a>(
    pod: &Candidate<'_>,
    node: &Value,
    peers: impl Iterator<Item = Peer<'a>>,
    namespaces: &Namespaces,
) -> bool {
    let terms = &pod.affinity;
    if !terms.iter().all(|term| term.is_known_by(node)) {
        return false;
    }
    // Only pods that match all terms count.
    let mut met = vec![false; terms.len()];
    let mut is_first = true;
    for peer in peers {
        if terms.iter().all(|term| term.selects(peer.namespace, |key| peer.pod.label(key), namespaces)) {
            for (term, met) in terms.iter().zip(&mut met) {
                is_first &= !term.is_known_by(peer.node);
                *met |= term.joins(node, peer.node);
            }
        }
    }
    let selects_itself = || terms.iter().all(|term| term.selects(pod.namespace(), |key| pod.label(key), namespaces));
    met.iter().all(|met| *met) || is_first && selects_itself()
}
