//! The finalizers of persistent volumes, of claims and of classes of their attributes, which protect them while they
//! are in use (<https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>).
//!
//! The API server adds them. This controller removes that of a deleted claim when no pod on a node uses it, that of a
//! deleted volume when no claim is bound to it, and that of a deleted class when no volume or claim names it.

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
const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";
/// Stands for the namespace in the keys of classes. No namespace has this name.
const CLASSES: &str = "/classes";

/// The controller of the finalizers. Volumes have keys without a namespace.
#[derive(Debug, Default)]
pub(crate) struct Protection {
    /// The deleted volumes, claims and classes that are protected.
    waiting: BTreeMap<Key, Arc<Value>>,
    /// The claims that each pod on a node uses.
    used: BTreeMap<Key, BTreeSet<String>>,
    /// The classes that each volume and claim names.
    classes: BTreeMap<Key, BTreeSet<String>>,
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

    /// Records the classes that a volume or claim names, and returns the keys of those that it no longer names.
    fn name_classes(&mut self, key: &Key, object: &Value, gone: bool) -> Vec<Key> {
        let classes = if gone { BTreeSet::new() } else { classes_of(object) };
        if classes.is_empty() && self.classes.is_empty() {
            return Vec::new();
        }
        let before = match classes.is_empty() {
            true => self.classes.remove(key),
            false => self.classes.insert(key.clone(), classes),
        };
        before.into_iter().flatten().map(|name| Key { namespace: CLASSES.into(), name }).collect()
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

/// Returns the names of the classes in the spec and the status of a volume or claim.
fn classes_of(object: &Value) -> BTreeSet<String> {
    let places = [
        "/spec/volumeAttributesClassName",
        "/status/currentVolumeAttributesClassName",
        "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
    ];
    places.iter().map(|place| text(object, place)).filter(|name| !name.is_empty()).map(Into::into).collect()
}

impl Controller for Protection {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if ![Kind::VOLUME, Kind::ATTRIBUTES_CLASS, Kind::CLAIM, Kind::POD].iter().any(|kind| kind.is_of(change)) {
            return Vec::new();
        }
        let (object, gone) = (change.object(), change.kind == ChangeKind::Deleted);
        if Kind::VOLUME.is_of(change) {
            let key = Key { namespace: String::new(), name: text(object, "/metadata/name").into() };
            let mut keys = self.name_classes(&key, object, gone);
            keys.extend(self.set(key, object, VOLUME_FINALIZER, gone));
            return keys;
        }
        if Kind::ATTRIBUTES_CLASS.is_of(change) {
            let key = Key { namespace: CLASSES.into(), name: text(object, "/metadata/name").into() };
            return self.set(key, object, CLASS_FINALIZER, gone);
        }
        if Kind::CLAIM.is_of(change) {
            let Some(key) = Key::of(object) else { return Vec::new() };
            let mut keys = self.name_classes(&key, object, gone);
            keys.extend(self.set(key, object, CLAIM_FINALIZER, gone));
            return keys;
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
            CLASSES => {
                let is_named = self.classes.values().any(|classes| classes.contains(&key.name));
                (Kind::ATTRIBUTES_CLASS, CLASS_FINALIZER, is_named)
            }
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
