//! The search for a node for a pod. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    candidate::{Candidate, Occupant},
    devices::ELSEWHERE,
    preemption::{self, UNHELPFUL, Victims},
    score,
    state::{ClusterState, Obstacle, Relations},
};

/// The number of nodes that are enough to choose from, as in kube-scheduler.
const ENOUGH: usize = 100;

/// Why no node can take a pod.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It would be so for every node, because of the pod's volumes. Kubernetes looks for nothing else then.
    Volumes(String),
    /// It would be so for every node, because of the pod's claims of devices.
    Devices(String),
    /// The error that ended the search.
    Error(String),
    /// What is in the way on each node.
    Nodes(BTreeMap<String, Obstacle>),
}

impl Refusal {
    /// Returns Kubernetes' reasons.
    pub(super) fn reasons(&self) -> String {
        match self {
            Self::Volumes(reason) | Self::Devices(reason) | Self::Error(reason) => reason.clone(),
            Self::Nodes(nodes) => counted(nodes.values().flat_map(|obstacle| &obstacle.reasons).map(|one| &**one)),
        }
    }

    /// Returns the nodes that other devices than those of the pod's claims could be on.
    pub(super) fn without_devices(&self) -> impl Iterator<Item = &str> + Clone {
        let nodes = if let Self::Nodes(nodes) = self { Some(nodes) } else { None };
        let are_elsewhere = |(_, obstacle): &(&String, &Obstacle)| obstacle.reasons == [ELSEWHERE];
        nodes.into_iter().flatten().filter(are_elsewhere).map(|(name, _)| &**name)
    }

    /// Returns whether it could help the pod if others left the node.
    pub(super) fn is_removable(&self, node: &str) -> bool {
        match self {
            Self::Volumes(_) | Self::Devices(_) | Self::Error(_) => false,
            Self::Nodes(nodes) => nodes.get(node).is_some_and(|obstacle| !obstacle.is_final),
        }
    }
}

/// The pods that nodes are kept free for, with their namespaces.
pub(super) type Nominated = [(String, Occupant)];

/// Returns the best node for a pod, of as many as are enough, or the `preferred` one if it would do. Nodes are tried
/// from the one at `start`, so that all have their turn; `start` is moved behind them.
///
/// # Errors
/// Returns what is in the way if no node can take the pod.
pub(super) fn find(
    pod: &Candidate<'_>,
    preferred: Option<&str>,
    (state, relations): (&ClusterState, &Relations<'_>),
    nominated: &Nominated,
    start: &mut usize,
) -> Result<String, Refusal> {
    if let Some(reason) = state.volumes.obstacle(pod) {
        return Err(Refusal::Volumes(reason));
    }
    if let Some(reason) = state.devices.obstacle(pod) {
        return Err(Refusal::Devices(reason));
    }
    let obstacle = |name: &str, node: &Value| state.trial(name, nominated, pod, relations).obstacle(node);
    if let Some((name, node)) = preferred.and_then(|name| state.nodes.get_key_value(name))
        && obstacle(name, node).is_none()
    {
        return Ok(name.clone());
    }
    let count = state.nodes.len();
    let first = start.checked_rem(count).unwrap_or_default();
    let (mut feasible, mut obstacles): (Vec<(&str, &Value)>, _) = (Vec::new(), BTreeMap::new());
    for (name, node) in state.nodes.iter().skip(first).chain(state.nodes.iter().take(first)) {
        match obstacle(name, node) {
            Some(obstacle) if obstacle.is_error => return Err(Refusal::Error(obstacle.reasons.concat())),
            Some(obstacle) => drop(obstacles.insert(name.clone(), obstacle)),
            None => feasible.push((name, node)),
        }
        if feasible.len() >= enough(count) {
            break;
        }
    }
    // After a search of all nodes, another one is first among equals.
    *start = (first + feasible.len() + obstacles.len() + 1).checked_rem(count).unwrap_or_default();
    match score::best(pod, &feasible, state, relations) {
        Some(name) => Ok(name.to_owned()),
        None => Err(Refusal::Nodes(obstacles)),
    }
}

/// Returns how many nodes are enough to choose from: a hundred, or the fewer percent the more there are.
fn enough(nodes: usize) -> usize {
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes.saturating_mul(percent) / 100).max(ENOUGH)
}

/// Returns the node on which it costs least to evict pods in favour of another one, and these pods.
///
/// # Errors
/// Returns Kubernetes' reasons if the pod doesn't fit anywhere, whatever goes.
pub(super) fn victims<'a>(
    pod: &Candidate<'_>,
    refusal: &Refusal,
    (state, relations): (&'a ClusterState, &Relations<'a>),
    nominated: &Nominated,
) -> Result<(&'a str, Victims<'a>), String> {
    let (mut best, mut found): (Option<(&str, Victims<'_>)>, _) = (None, 0);
    let mut reasons = Vec::new();
    for (name, node) in &state.nodes {
        if !refusal.is_removable(name) {
            reasons.push(UNHELPFUL.to_owned());
            continue;
        }
        match preemption::victims(pod, node, state, state.trial(name, nominated, pod, relations)) {
            Ok(victims) => {
                found += 1;
                if best.as_ref().is_none_or(|(_, others)| victims.are_cheaper_than(others)) {
                    best = Some((name, victims));
                }
            }
            Err(mut others) => reasons.append(&mut others),
        }
        if found >= ENOUGH.max(state.nodes.len() / 10) {
            break;
        }
    }
    best.ok_or_else(|| counted(reasons.iter().map(|one| &**one)))
}

/// Returns reasons with the number of nodes that have each.
fn counted<'a>(reasons: impl Iterator<Item = &'a str>) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut texts: Vec<_> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    texts.sort();
    texts.join(", ")
}
