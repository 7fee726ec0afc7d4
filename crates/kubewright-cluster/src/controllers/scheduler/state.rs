//! What the scheduler decides by: the objects of the cluster, and what is in the way of a pod. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    affinity::Affinity,
    candidate::{Candidate, Occupant, Peer, PodKey},
    devices::{self, Demand, Devices},
    filter,
    fit::Requested,
    group::Groups,
    ports::{self, UsedPorts},
    spread::HardConstraints,
    terms::Namespaces,
    volume_limits::{self, VolumeLimits},
    volumes::Volumes,
};
use crate::controllers::{
    reconcile::Key,
    value::{list, text},
};

/// Why a node can't take a pod whose claim only one pod may use.
const CLAIM_IN_USE: &str =
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// The objects that matter to the scheduler.
#[derive(Debug, Default)]
pub(super) struct ClusterState {
    pub(super) nodes: BTreeMap<String, Arc<Value>>,
    pub(super) namespaces: Namespaces,
    pub(super) volumes: Volumes,
    pub(super) volume_limits: VolumeLimits,
    pub(super) devices: Devices,
    pub(super) budgets: BTreeMap<Key, Arc<Value>>,
    /// Which pods belong together.
    pub(super) groups: Groups,
    /// The pods that have a node or are about to be bound.
    pods: BTreeMap<PodKey, Occupant>,
    /// Those of them whose affinity or anti-affinity has terms.
    with_terms: BTreeSet<PodKey>,
    /// What the pods of each node take.
    sums: BTreeMap<String, Sums>,
}

/// What the pods of a node take.
#[derive(Clone, Debug, Default)]
struct Sums {
    requested: Requested,
    ports: UsedPorts,
}

impl Sums {
    fn add(&mut self, pod: &Occupant) {
        self.requested.add(&pod.requests);
        self.ports.add(&pod.ports);
    }

    fn subtract(&mut self, pod: &Occupant) {
        self.requested.subtract(&pod.requests);
        self.ports.subtract(&pod.ports);
    }
}

/// What is in the way of a pod on a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// Kubernetes' reasons.
    pub(super) reasons: Vec<String>,
    /// True if it would remain if other pods went away.
    pub(super) is_final: bool,
    /// Whether it is an error, after which no other node is tried.
    pub(super) is_error: bool,
}

impl Obstacle {
    fn new(reason: impl Into<String>, is_final: bool) -> Self {
        Self::of(vec![reason.into()], is_final)
    }

    fn of(reasons: Vec<String>, is_final: bool) -> Self {
        Self { reasons, is_final, is_error: false }
    }
}

impl ClusterState {
    /// Adds a pod that has a node.
    pub(super) fn add(&mut self, key: PodKey, pod: Occupant) {
        self.sums.entry(pod.node.clone()).or_default().add(&pod);
        if !pod.terms.is_empty() {
            self.with_terms.insert(key.clone());
        }
        self.pods.insert(key, pod);
    }

    /// Removes a pod that had a node.
    pub(super) fn remove(&mut self, key: &PodKey) -> Option<Occupant> {
        let pod = self.pods.remove(key)?;
        if let Some(sums) = self.sums.get_mut(&pod.node) {
            sums.subtract(&pod);
            if sums.requested.is_empty() {
                self.sums.remove(&pod.node);
            }
        }
        self.with_terms.remove(key);
        Some(pod)
    }

    /// Returns whether a pod has a node.
    pub(super) fn has(&self, key: &PodKey) -> bool {
        self.pods.contains_key(key)
    }

    /// Returns the pods of a node.
    pub(super) fn on_node(&self, node: &str) -> impl Iterator<Item = (&PodKey, &Occupant)> {
        self.pods.iter().filter(move |(_, pod)| pod.node == node)
    }

    /// Returns the sums of the requests of the pods on a node; `None` for a node without pods.
    pub(super) fn requested(&self, node: &str) -> Option<&Requested> {
        self.sums.get(node).map(|sums| &sums.requested)
    }

    /// Returns what the pods that have a node mean for the constraints and terms of a pod.
    pub(super) fn relations<'a>(&'a self, pod: &'a Candidate<'_>) -> Relations<'a> {
        let nodes = self.nodes.values().map(|node| &**node);
        let spread = HardConstraints::new(pod, nodes, self.peers_in(pod.namespace()));
        let mut affinity = Affinity::default();
        let mut count = |peer| affinity.count(pod, peer, 1, &self.namespaces);
        if pod.terms().are_required() {
            self.peers().for_each(&mut count);
        } else {
            self.peers_with_terms().for_each(&mut count);
        }
        Relations { spread, affinity, demand: self.devices.demand(pod).map(Arc::new) }
    }

    /// Returns a node as it is, with those of the nominated pods that it is kept free for. `relations` are those of the
    /// pod that it is tried for.
    pub(super) fn trial<'a>(
        &'a self,
        node: &str,
        nominated: &'a [(String, Occupant)],
        pod: &'a Candidate<'a>,
        relations: &'a Relations<'a>,
    ) -> Trial<'a> {
        let nominated = nominated.iter().filter(|(_, pod)| pod.node == node).collect();
        let sums = self.sums.get(node).map_or_else(Cow::default, Cow::Borrowed);
        let relations = Cow::Borrowed(relations);
        Trial { state: self, pod, sums, relations, removed: BTreeSet::new(), nominated }
    }

    fn peer<'a>(&'a self, namespace: &'a str, pod: &'a Occupant) -> Option<Peer<'a>> {
        Some(Peer { namespace, pod, node: self.nodes.get(&pod.node)? })
    }

    /// Returns the pods that have a node.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer<'_>> {
        self.pods.iter().filter_map(|(key, pod)| self.peer(&key.namespace, pod))
    }

    fn pods_in(&self, namespace: &str) -> impl Iterator<Item = (&PodKey, &Occupant)> {
        self.pods.range(PodKey::first_of(namespace)..).take_while(move |(key, _)| key.namespace == namespace)
    }

    /// Returns the pods of a namespace that have a node.
    pub(super) fn peers_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = Peer<'a>> {
        self.pods_in(namespace).filter_map(move |(_, pod)| self.peer(namespace, pod))
    }

    /// Returns the pods that have a node and whose affinity or anti-affinity has terms.
    pub(super) fn peers_with_terms(&self) -> impl Iterator<Item = Peer<'_>> {
        self.with_terms.iter().filter_map(|key| self.peer(&key.namespace, self.pods.get(key)?))
    }
}

/// What the pods that have a node mean for the constraints and terms of a pod, and what it asks for. Computed once for
/// all nodes.
#[derive(Clone, Debug)]
pub(super) struct Relations<'a> {
    spread: HardConstraints<'a>,
    affinity: Affinity<'a>,
    demand: Option<Arc<Demand<'a>>>,
}

impl Relations<'_> {
    /// Returns what the claims of the pod ask for that have no devices.
    pub(super) fn demand(&self) -> Option<&Demand<'_>> {
        self.demand.as_deref()
    }
}

/// A node as it would be for a pod without some of the pods on it.
#[derive(Debug)]
pub(super) struct Trial<'a> {
    state: &'a ClusterState,
    pod: &'a Candidate<'a>,
    sums: Cow<'a, Sums>,
    relations: Cow<'a, Relations<'a>>,
    removed: BTreeSet<&'a PodKey>,
    /// The pods of at least the same priority that wait for victims to go, with their namespaces.
    nominated: Vec<&'a (String, Occupant)>,
}

impl<'a> Trial<'a> {
    /// Takes a pod off the node.
    pub(super) fn remove(&mut self, key: &'a PodKey, pod: &'a Occupant) {
        self.sums.to_mut().subtract(pod);
        count(self.state, self.pod, &mut self.relations, (&key.namespace, pod), -1);
        self.removed.insert(key);
    }

    /// Puts a pod back on the node.
    pub(super) fn restore(&mut self, key: &'a PodKey, pod: &'a Occupant) {
        self.sums.to_mut().add(pod);
        count(self.state, self.pod, &mut self.relations, (&key.namespace, pod), 1);
        self.removed.remove(key);
    }

    /// Returns what is in the way of the pod. It must fit beside the nominated pods, and without them, because its
    /// affinity may not depend on pods that aren't there.
    pub(super) fn obstacle(&self, node: &Value) -> Option<Obstacle> {
        let beside = (!self.nominated.is_empty()).then(|| self.check(node, &self.nominated)).flatten();
        beside.or_else(|| self.check(node, &[]))
    }

    fn check(&self, node: &Value, nominated: &[&'a (String, Occupant)]) -> Option<Obstacle> {
        let pod = self.pod;
        if let Some(reason) = filter::reason_not_to_bind(pod.object, node) {
            return Some(Obstacle::new(reason, true));
        }
        let (mut sums, mut relations) = (Cow::Borrowed(&*self.sums), Cow::Borrowed(&*self.relations));
        for (namespace, other) in nominated.iter().copied() {
            sums.to_mut().add(other);
            count(self.state, pod, &mut relations, (namespace, other), 1);
        }
        if sums.ports.conflict_with(&pod.taken.ports) {
            return Some(Obstacle::new(ports::CONFLICT, false));
        }
        if let Some(lack) = sums.requested.lack(&pod.taken.requests, node) {
            return Some(Obstacle::of(lack.reasons, lack.is_final));
        }
        if self.is_claim_in_use(nominated) {
            return Some(Obstacle::new(CLAIM_IN_USE, false));
        }
        if self.exceeds_volume_limit(node, nominated) {
            return Some(Obstacle::new(volume_limits::EXCEEDED, false));
        }
        let conflicts = self.state.volumes.conflicts(pod, node);
        if !conflicts.is_empty() {
            return Some(Obstacle::of(conflicts.into_iter().map(str::to_owned).collect(), true));
        }
        let affinity = || relations.affinity.conflict(pod, node, &self.state.namespaces);
        if let Some(conflict) = relations.spread.conflict(node).or_else(affinity) {
            return Some(Obstacle::new(conflict.reason, conflict.is_final));
        }
        Some(match self.state.devices.conflict(pod, relations.demand(), node)? {
            devices::Conflict::Reason(reason) => Obstacle::new(reason, true),
            devices::Conflict::Error(why) => Obstacle { is_error: true, ..Obstacle::new(why, true) },
        })
    }

    /// Returns whether the volumes of the pod would be too many for the node.
    fn exceeds_volume_limit(&self, node: &Value, nominated: &[&(String, Occupant)]) -> bool {
        let name = text(node, "/metadata/name");
        let others = || {
            let there = self.state.on_node(name).filter(|(key, _)| !self.removed.contains(key));
            let there = there.map(|(key, other)| (&*key.namespace, other));
            there.chain(nominated.iter().map(|(namespace, other)| (&**namespace, other)))
        };
        self.state.volume_limits.are_exceeded(self.pod, name, &self.state.volumes, others)
    }

    /// Returns whether another pod has a claim of the pod that only one pod may use.
    fn is_claim_in_use(&self, nominated: &[&(String, Occupant)]) -> bool {
        let pod = self.pod;
        let is_exclusive = |name: &&String| {
            let claim = self.state.volumes.claim(pod, name);
            claim.is_some_and(|claim| list(claim, "/spec/accessModes").contains(&"ReadWriteOncePod".into()))
        };
        let exclusive: Vec<_> = pod.taken.claims.iter().filter(is_exclusive).collect();
        let has_one = |other: &Occupant| exclusive.iter().any(|name| other.claims.contains(name));
        let there = || self.state.pods_in(pod.namespace()).filter(|(key, _)| !self.removed.contains(key));
        let is_near = |(namespace, other): &&(String, Occupant)| namespace == pod.namespace() && has_one(other);
        !exclusive.is_empty()
            && (there().any(|(_, other)| has_one(other)) || nominated.iter().copied().any(|one| is_near(&one)))
    }
}

/// Adds a number to the counts of another pod: 1 for a pod that is there, and -1 for one that is removed.
fn count<'a>(
    state: &'a ClusterState,
    pod: &'a Candidate<'_>,
    relations: &mut Cow<'_, Relations<'a>>,
    (namespace, other): (&'a str, &'a Occupant),
    number: i64,
) {
    if let Some(peer) = state.peer(namespace, other) {
        let relations = relations.to_mut();
        relations.spread.count(pod, peer, number);
        relations.affinity.count(pod, peer, number, &state.namespaces);
    }
}
