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
use crate::{
    controllers::{
        reconcile::Key,
        value::{is_deleting, list, text},
    },
    node::NODE_NAME,
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
    /// The sums of what the pods of the node take.
    requested: Requested,
    ports: UsedPorts,
}

/// What is in the way of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// Kubernetes' reasons, with the number of nodes.
    pub(super) reasons: String,
    /// True if it would remain if other pods went away.
    pub(super) is_final: bool,
}

impl Obstacle {
    fn of_node(reason: &str, is_final: bool) -> Self {
        Self { reasons: format!("1 {reason}"), is_final }
    }
}

impl ClusterState {
    /// Adds a pod that has a node.
    pub(super) fn add(&mut self, key: PodKey, pod: Occupant) {
        if pod.node == NODE_NAME {
            self.requested.add(&pod.requests);
            self.ports.add(&pod.ports);
        }
        if !pod.anti_affinity.is_empty() {
            self.repelling.insert(key.clone());
        }
        self.pods.insert(key, pod);
    }

    /// Removes a pod that had a node.
    pub(super) fn remove(&mut self, key: &PodKey) -> Option<Occupant> {
        let pod = self.pods.remove(key)?;
        if pod.node == NODE_NAME {
            self.requested.subtract(&pod.requests);
            self.ports.subtract(&pod.ports);
        }
        self.repelling.remove(key);
        Some(pod)
    }

    /// Returns whether a pod has a node.
    pub(super) fn has(&self, key: &PodKey) -> bool {
        self.pods.contains_key(key)
    }

    /// Returns the pods of the node.
    pub(super) fn on_node(&self) -> impl Iterator<Item = (&PodKey, &Occupant)> {
        self.pods.iter().filter(|(_, pod)| pod.node == NODE_NAME)
    }

    /// Returns the node; `None` if it doesn't exist.
    pub(super) fn node(&self) -> Option<&Arc<Value>> {
        self.nodes.get(NODE_NAME)
    }

    /// Returns why a pod has to wait for its claims.
    pub(super) fn claim_obstacle(&self, pod: &Candidate<'_>) -> Option<Obstacle> {
        let why = pod.taken.claims.iter().find_map(|name| match self.claim(pod, name) {
            None => Some(format!("persistentvolumeclaim \"{name}\" not found")),
            Some(claim) if is_deleting(claim) => Some(format!("persistentvolumeclaim \"{name}\" is being deleted")),
            Some(claim) if text(claim, "/status/phase") == "Bound" => None,
            Some(_) => Some("pod has unbound immediate PersistentVolumeClaims".into()),
        });
        why.map(|reasons| Obstacle { reasons, is_final: true })
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

    /// Returns the node as it is, with the pods that it is kept free for.
    pub(super) fn trial(&self, nominated: Vec<(&str, Occupant)>) -> Trial<'_> {
        let nominated = nominated.into_iter().map(|(namespace, pod)| (namespace.to_owned(), pod)).collect();
        let (requested, ports) = (Cow::Borrowed(&self.requested), Cow::Borrowed(&self.ports));
        Trial { state: self, requested, ports, removed: BTreeSet::new(), nominated }
    }

    fn peer<'a>(&'a self, namespace: &'a str, pod: &'a Occupant) -> Option<Peer<'a>> {
        Some(Peer { namespace, pod, node: self.nodes.get(&pod.node)? })
    }

    #[cfg(test)]
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer<'_>> {
        self.pods.iter().filter_map(|(key, pod)| self.peer(&key.namespace, pod))
    }
}

/// The node as it would be without some of its pods.
#[derive(Debug)]
pub(super) struct Trial<'a> {
    state: &'a ClusterState,
    requested: Cow<'a, Requested>,
    ports: Cow<'a, UsedPorts>,
    removed: BTreeSet<&'a PodKey>,
    /// The pods of at least the same priority that wait for victims to go, with their namespaces.
    nominated: Vec<(String, Occupant)>,
}

impl<'a> Trial<'a> {
    /// Takes a pod off the node.
    pub(super) fn remove(&mut self, key: &'a PodKey, pod: &Occupant) {
        self.requested.to_mut().subtract(&pod.requests);
        self.ports.to_mut().subtract(&pod.ports);
        self.removed.insert(key);
    }

    /// Puts a pod back on the node.
    pub(super) fn restore(&mut self, key: &'a PodKey, pod: &Occupant) {
        self.requested.to_mut().add(&pod.requests);
        self.ports.to_mut().add(&pod.ports);
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
            return Some(Obstacle::of_node(&reason, true));
        }
        let (mut requested, mut used) = (Cow::Borrowed(&*self.requested), Cow::Borrowed(&*self.ports));
        for (_, other) in nominated {
            requested.to_mut().add(&other.requests);
            used.to_mut().add(&other.ports);
        }
        if used.conflict_with(&pod.taken.ports) {
            return Some(Obstacle::of_node(ports::CONFLICT, false));
        }
        if let Some(lack) = requested.lack(&pod.taken.requests, node) {
            let reasons: Vec<_> = lack.reasons.iter().map(|reason| format!("1 {reason}")).collect();
            return Some(Obstacle { reasons: reasons.join(", "), is_final: lack.is_final });
        }
        if self.is_claim_in_use(pod, nominated) {
            return Some(Obstacle::of_node(CLAIM_IN_USE, false));
        }
        if let Some(reason) = self.state.volume_conflict(pod, node) {
            return Some(Obstacle::of_node(reason, true));
        }
        let nodes = self.state.nodes.values().map(|node| &**node);
        let spread = || spread::conflict(pod, node, nodes, || self.peers(nominated));
        let repelling = || self.repelling(nominated);
        let affinity = || affinity::conflict(pod, node, || self.peers(nominated), repelling, &self.state.namespaces);
        let conflict = spread().or_else(affinity)?;
        Some(Obstacle::of_node(conflict.reason, conflict.is_final))
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
