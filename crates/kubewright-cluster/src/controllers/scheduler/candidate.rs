//! Pods as the scheduler sees them: those that wait, and those that have a node. Pure.

use jiff::Timestamp;
use kubewright_apiserver::StoredObject;
use serde_json::Value;

use super::{
    fit::{self, Amounts},
    ports::{self, HostPort},
    terms::Terms,
};
use crate::controllers::{
    pod::claims_of,
    value::{condition, int, is_deleting, text, time},
};

/// The reason in the condition of pods that were evicted in favour of others.
pub(super) const PREEMPTED: &str = "PreemptionByScheduler";

/// The identity of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodKey {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

impl PodKey {
    /// Returns the identity of a pod.
    pub(super) fn of(pod: &Value) -> Self {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        Self { namespace: text("namespace"), name: text("name"), uid: text("uid") }
    }

    /// Returns an identity that sorts before all pods of a namespace.
    pub(super) fn first_of(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: String::new(), uid: String::new() }
    }
}

/// Returns the priority of a pod.
pub(super) fn priority(pod: &Value) -> i64 {
    int(pod, "/spec/priority")
}

/// A pod that has a node, or will have it, and what it takes of it.
#[derive(Clone, Debug)]
pub(super) struct Occupant {
    pub(super) node: String,
    pub(super) requests: Amounts,
    pub(super) ports: Vec<HostPort>,
    pub(super) terms: Terms,
    /// The names of its claims.
    pub(super) claims: Vec<String>,
    pub(super) priority: i64,
    pub(super) started: Option<Timestamp>,
    pub(super) is_deleting: bool,
    /// Whether it is being deleted in favour of another pod.
    pub(super) is_preempted: bool,
    /// Whether its binding hasn't been seen yet.
    pub(super) is_assumed: bool,
    stored: StoredObject,
}

impl Occupant {
    /// Creates the occupant from a pod and its stored version.
    pub(super) fn by(pod: &Value, stored: StoredObject) -> Self {
        let is_target = |target: &Value| target["status"] == "True" && text(target, "/reason") == PREEMPTED;
        Self {
            node: text(pod, "/spec/nodeName").to_owned(),
            requests: fit::requests(pod),
            ports: ports::host_ports(pod),
            terms: Terms::of(pod),
            claims: claims_of(pod).collect(),
            priority: priority(pod),
            started: time(pod, "/status/startTime"),
            is_deleting: is_deleting(pod),
            is_preempted: is_deleting(pod) && condition(pod, "DisruptionTarget").is_some_and(is_target),
            is_assumed: false,
            stored,
        }
    }

    /// Returns the value of a label.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.stored.label(key)
    }

    /// Returns whether another version of the pod takes the same.
    pub(super) fn takes_the_same(&self, other: &Self) -> bool {
        self.node == other.node && self.requests == other.requests && self.ports == other.ports
    }

    /// Returns whether another version of the pod looks the same to the affinity and the constraints of other pods.
    pub(super) fn looks_the_same(&self, other: &Self) -> bool {
        let labels = |one: &Self| one.stored.value()["metadata"]["labels"].clone();
        self.is_deleting == other.is_deleting && self.is_assumed == other.is_assumed && labels(self) == labels(other)
    }
}

/// A pod on a node, as other pods see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer<'a> {
    pub(super) namespace: &'a str,
    pub(super) pod: &'a Occupant,
    pub(super) node: &'a Value,
}

/// A pod to find a node for.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) key: &'a PodKey,
    pub(super) object: &'a Value,
    /// What it would take.
    pub(super) taken: Occupant,
}

impl<'a> Candidate<'a> {
    /// Creates the candidate from a pod and its stored version.
    pub(super) fn new(key: &'a PodKey, object: &'a Value, stored: StoredObject) -> Self {
        Self { key, object, taken: Occupant::by(object, stored) }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.key.namespace
    }

    /// Returns the terms of its affinity and anti-affinity.
    pub(super) fn terms(&self) -> &Terms {
        &self.taken.terms
    }

    /// Returns the value of a label.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.taken.label(key)
    }
}
