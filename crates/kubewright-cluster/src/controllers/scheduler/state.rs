//! What the scheduler decides by: the objects of the cluster, and what is in the way of a pod. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    affinity,
    candidate::{Candidate, Occupant, Peer, PodKey},
    filter,
    fit::Requested,
    ports::{self, UsedPorts},
    spread,
    terms::Namespaces,
};
use crate::controllers::{
    reconcile::Key,
    value::{is_deleting, list, text},
};

/// Why a node can't take a pod whose volume is elsewhere.
const VOLUME_ELSEWHERE: &str = "node(s) didn't match PersistentVolume's node affinity";
/// Why a node can't take a pod whose claim only one pod may use.
const CLAIM_IN_USE: &str =
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
/// Why a node can't take a pod whose volume doesn't exist.
const NO_VOLUME: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// The objects that matter to the scheduler.
#[derive(Debug, Default)]
pub(super) struct ClusterState {
    pub(super) nodes: BTreeMap<String, Arc<Value>>,
    pub(super) namespaces: Namespaces,
    pub(super) claims: BTreeMap<Key, Arc<Value>>,
    /// What each persistent volume requires of nodes.
    pub(super) volumes: BTreeMap<String, Value>,
    pub(super) budgets: BTreeMap<Key, Arc<Value>>,
    /// The pods that have a node or are about to be bound.
    pods: BTreeMap<PodKey, Occupant>,
    /// Those of them that don't want some pods beside them.
    repelling: BTreeSet<PodKey>,
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
}

impl Obstacle {
    fn new(reason: impl Into<String>, is_final: bool) -> Self {
        Self { reasons: vec![reason.into()], is_final }
    }
}

impl ClusterState {
    /// Adds a pod that has a node.
    pub(super) fn add(&mut self, key: PodKey, pod: Occupant) {
        self.sums.entry(pod.node.clone()).or_default().add(&pod);
        if !pod.anti_affinity.is_empty() {
            self.repelling.insert(key.clone());
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
        self.repelling.remove(key);
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

    /// Returns why a pod has to wait for its claims.
    pub(super) fn claim_obstacle(&self, pod: &Candidate<'_>) -> Option<String> {
        pod.taken.claims.iter().find_map(|name| match self.claim(pod, name) {
            None => Some(format!("persistentvolumeclaim \"{name}\" not found")),
            Some(claim) if is_deleting(claim) => Some(format!("persistentvolumeclaim \"{name}\" is being deleted")),
            Some(claim) if text(claim, "/status/phase") == "Bound" => None,
            Some(_) => Some("pod has unbound immediate PersistentVolumeClaims".into()),
        })
    }

    fn claim(&self, pod: &Candidate<'_>, name: &str) -> Option<&Arc<Value>> {
        self.claims.get(&Key { namespace: pod.key.namespace.clone(), name: name.to_owned() })
    }

    /// Returns why the volumes of a pod can't be used on the node.
    fn volume_conflict(&self, pod: &Candidate<'_>, node: &Value) -> Option<&'static str> {
        pod.taken.claims.iter().find_map(|name| {
            let volume = text(self.claim(pod, name)?, "/spec/volumeName");
            match self.volumes.get(volume) {
                _ if volume.is_empty() => None,
                None => Some(NO_VOLUME),
                Some(required) => (!filter::satisfies(node, required)).then_some(VOLUME_ELSEWHERE),
            }
        })
    }

    /// Returns a node as it is, with those of the nominated pods that it is kept free for.
    pub(super) fn trial(&self, node: &str, nominated: &[(String, Occupant)]) -> Trial<'_> {
        let nominated = nominated.iter().filter(|(_, pod)| pod.node == node).cloned().collect();
        let sums = self.sums.get(node).map_or_else(Cow::default, Cow::Borrowed);
        Trial { state: self, sums, removed: BTreeSet::new(), nominated }
    }

    fn peer<'a>(&'a self, namespace: &'a str, pod: &'a Occupant) -> Option<Peer<'a>> {
        Some(Peer { namespace, pod, node: self.nodes.get(&pod.node)? })
    }

    #[cfg(test)]
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer<'_>> {
        self.pods.iter().filter_map(|(key, pod)| self.peer(&key.namespace, pod))
    }
}

/// A node as it would be without some of its pods.
#[derive(Debug)]
pub(super) struct Trial<'a> {
    state: &'a ClusterState,
    sums: Cow<'a, Sums>,
    removed: BTreeSet<&'a PodKey>,
    /// The pods of at least the same priority that wait for victims to go, with their namespaces.
    nominated: Vec<(String, Occupant)>,
}

impl<'a> Trial<'a> {
    /// Takes a pod off the node.
    pub(super) fn remove(&mut self, key: &'a PodKey, pod: &Occupant) {
        self.sums.to_mut().subtract(pod);
        self.removed.insert(key);
    }

    /// Puts a pod back on the node.
    pub(super) fn restore(&mut self, key: &'a PodKey, pod: &Occupant) {
        self.sums.to_mut().add(pod);
        self.removed.remove(key);
    }

    /// Returns what is in the way of a pod. It must fit beside the nominated pods, and without them, because its affinity
    /// may not depend on pods that aren't there.
    pub(super) fn obstacle(&self, pod: &Candidate<'_>, node: &Value) -> Option<Obstacle> {
        let beside = (!self.nominated.is_empty()).then(|| self.check(pod, node, &self.nominated)).flatten();
        beside.or_else(|| self.check(pod, node, &[]))
    }

    fn check(&self, pod: &Candidate<'_>, node: &Value, nominated: &[(String, Occupant)]) -> Option<Obstacle> {
        if let Some(reason) = filter::reason_not_to_bind(pod.object, node) {
            return Some(Obstacle::new(reason, true));
        }
        let mut sums = Cow::Borrowed(&*self.sums);
        for (_, other) in nominated {
            sums.to_mut().add(other);
        }
        if sums.ports.conflict_with(&pod.taken.ports) {
            return Some(Obstacle::new(ports::CONFLICT, false));
        }
        if let Some(lack) = sums.requested.lack(&pod.taken.requests, node) {
            return Some(Obstacle { reasons: lack.reasons, is_final: lack.is_final });
        }
        if self.is_claim_in_use(pod, nominated) {
            return Some(Obstacle::new(CLAIM_IN_USE, false));
        }
        if let Some(reason) = self.state.volume_conflict(pod, node) {
            return Some(Obstacle::new(reason, true));
        }
        let nodes = self.state.nodes.values().map(|node| &**node);
        let spread = || spread::conflict(pod, node, nodes, || self.peers(nominated));
        let repelling = || self.repelling(nominated);
        let affinity = || affinity::conflict(pod, node, || self.peers(nominated), repelling, &self.state.namespaces);
        let conflict = spread().or_else(affinity)?;
        Some(Obstacle::new(conflict.reason, conflict.is_final))
    }

    /// Returns whether another pod has a claim of the pod that only one pod may use.
    fn is_claim_in_use(&self, pod: &Candidate<'_>, nominated: &[(String, Occupant)]) -> bool {
        let is_exclusive = |name: &&String| {
            let claim = self.state.claim(pod, name);
            claim.is_some_and(|claim| list(claim, "/spec/accessModes").contains(&"ReadWriteOncePod".into()))
        };
        let exclusive: Vec<_> = pod.taken.claims.iter().filter(is_exclusive).collect();
        let has_one = |peer: Peer<'_>| {
            peer.namespace == pod.namespace() && exclusive.iter().any(|name| peer.pod.claims.contains(name))
        };
        !exclusive.is_empty() && self.peers(nominated).any(has_one)
    }

    /// Returns the pods that are there.
    fn peers<'b>(&'b self, nominated: &'b [(String, Occupant)]) -> impl Iterator<Item = Peer<'b>> {
        let there = self.state.pods.iter().filter(|(key, _)| !self.removed.contains(key));
        let there = there.map(|(key, pod)| (&*key.namespace, pod));
        let nominated = nominated.iter().map(|(namespace, pod)| (&**namespace, pod));
        there.chain(nominated).filter_map(|(namespace, pod)| self.state.peer(namespace, pod))
    }

    /// Returns those of the pods that are there that don't want some pods beside them.
    fn repelling<'b>(&'b self, nominated: &'b [(String, Occupant)]) -> impl Iterator<Item = Peer<'b>> {
        let there = self.state.repelling.iter().filter(|key| !self.removed.contains(key));
        let there = there.filter_map(|key| Some((&*key.namespace, self.state.pods.get(key)?)));
        let nominated = nominated.iter().map(|(namespace, pod)| (&**namespace, pod));
        there.chain(nominated).filter_map(|(namespace, pod)| self.state.peer(namespace, pod))
    }
}
