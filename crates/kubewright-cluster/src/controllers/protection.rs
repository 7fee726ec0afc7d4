//! The finalizers of persistent volumes and claims, which protect them while they are in use
//! (<https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>).
//!
//! The API server adds them. This controller removes that of a deleted claim when no pod on a node uses it, and that of a
//! deleted volume when no claim is bound to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    pod::claims_of,
    reconcile::{Controller, Key, Plan, Step},
    value::{is_deleting, list, text},
};

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// The controller of the finalizers. Volumes have keys without a namespace.
#[derive(Debug, Default)]
pub(crate) struct Protection {
    /// The deleted volumes and claims that are protected.
    waiting: BTreeMap<Key, Arc<Value>>,
    /// The claims that each pod on a node uses.
    used: BTreeMap<Key, BTreeSet<String>>,
}

impl Protection {
    fn set(&mut self, key: Key, object: &Arc<Value>, finalizer: &str, gone: bool) -> Vec<Key> {
        let protected = list(object, "/metadata/finalizers").iter().any(|name| name == finalizer);
        if gone || !protected || !is_deleting(object) {
            self.waiting.remove(&key);
            return Vec::new();
        }
        self.waiting.insert(key.clone(), object.clone());
        vec![key]
    }

    /// Returns whether a pod of the same namespace uses a claim.
    fn is_used(&self, claim: &Key) -> bool {
        let pods = self.used.range(Key::first_of(&claim.namespace)..);
        let mut pods = pods.take_while(|(pod, _)| pod.namespace == claim.namespace);
        pods.any(|(_, claims)| claims.contains(&claim.name))
    }
}

/// Returns the names of the claims that a pod uses; none before a node has it.
fn claims_in_use(pod: &Value) -> BTreeSet<String> {
    if text(pod, "/spec/nodeName").is_empty() { BTreeSet::new() } else { claims_of(pod).collect() }
}

impl Controller for Protection {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        let (object, gone) = (&change.object, change.kind == ChangeKind::Deleted);
        if Kind::VOLUME.is_of(change) {
            let key = Key { namespace: String::new(), name: text(object, "/metadata/name").into() };
            return self.set(key, object, VOLUME_FINALIZER, gone);
        }
        if Kind::CLAIM.is_of(change) {
            let Some(key) = Key::of(object) else { return Vec::new() };
            return self.set(key, object, CLAIM_FINALIZER, gone);
        }
        if !Kind::POD.is_of(change) {
            return Vec::new();
        }
        let claims = if gone { BTreeSet::new() } else { claims_in_use(object) };
        if claims.is_empty() && self.used.is_empty() {
            return Vec::new();
        }
        let Some(key) = Key::of(object) else { return Vec::new() };
        let before = if claims.is_empty() { self.used.remove(&key) } else { self.used.insert(key.clone(), claims) };
        let before = before.into_iter().flatten();
        before.map(|name| Key { namespace: key.namespace.clone(), name }).collect()
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(object) = self.waiting.get(key) else { return Plan::default() };
        let (kind, finalizer, used) = match &*key.namespace {
            "" => (Kind::VOLUME, VOLUME_FINALIZER, text(object, "/status/phase") == "Bound"),
            _ => (Kind::CLAIM, CLAIM_FINALIZER, self.is_used(key)),
        };
        let mut plan = Plan::of(&kind, object);
        if !used {
            let others: Vec<_> =
                list(object, "/metadata/finalizers").iter().filter(|name| *name != finalizer).collect();
            plan.steps.push(Step::change(&kind, object, json!({"metadata": {"finalizers": others}})));
        }
        plan
    }
}
