//! The binding of claims to persistent volumes, and the class `standard`, whose volumes are folders of the node
//! (<https://kubernetes.io/docs/concepts/storage/persistent-volumes/>).
//!
//! * [`claims`]: the claims, and the volumes for them
//! * [`volumes`]: the phases of volumes, and what becomes of them without their claims
//! * [`matching`]: the volumes that satisfy a claim
//! * [`provision`]: the class, and its folders
//!
//! The class binds at once (`Immediate`): there is one node, so nothing is gained by waiting for the first pod, and
//! claims without pods are bound too. Claims of a class with `WaitForFirstConsumer` wait until the scheduler has
//! reserved a volume for them, or selected the node for which one is created.

mod claims;
pub(crate) mod matching;
pub(crate) mod provision;
#[cfg(test)]
mod tests;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    pod::{claims_of, has_ended},
    reconcile::{Controller, Key, Plan},
    value::text,
};

/// The kind `StorageClass`.
pub(crate) const CLASS: Kind = Kind { group: "storage.k8s.io", kind: "StorageClass", plural: "storageclasses" };

/// The annotation of a claim whose binding is complete.
pub(crate) const COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The annotation of a claim or volume whose other side was chosen by this controller.
pub(crate) const CHOSEN: &str = "pv.kubernetes.io/bound-by-controller";
/// The annotation of a claim with the node that the scheduler has selected for its first pod.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The provisioner of classes whose volumes aren't created by any.
pub(crate) const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The annotation of a volume with the provisioner that created it.
const PROVISIONED: &str = "pv.kubernetes.io/provisioned-by";

/// The controller of volumes and claims. Volumes have keys without a namespace.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    /// The folder in which the folders of volumes are; `None` if none are provisioned.
    root: Option<PathBuf>,
    claims: BTreeMap<Key, Arc<Value>>,
    volumes: BTreeMap<String, Arc<Value>>,
    classes: BTreeMap<String, Arc<Value>>,
    /// The claims that each pod without a node uses.
    used: BTreeMap<Key, BTreeSet<String>>,
}

impl Volumes {
    /// Creates the controller. Volumes of the class `standard` are folders in `root`.
    pub(crate) fn new(root: Option<PathBuf>) -> Self {
        Self { root, ..Self::default() }
    }

    /// Returns the claims that aren't bound.
    fn unbound(&self) -> impl Iterator<Item = Key> {
        self.claims.iter().filter(|(_, claim)| !is_completed(claim)).map(|(key, _)| key.clone())
    }

    fn take_volume(&mut self, volume: &Arc<Value>, gone: bool) -> Vec<Key> {
        let name = text(volume, "/metadata/name").to_owned();
        let mut keys: Vec<_> = claim_of(volume).into_iter().collect();
        // A claim may wait for this volume, or for any volume like it.
        let named = self.claims.iter().filter(|(_, claim)| text(claim, "/spec/volumeName") == name);
        keys.extend(named.map(|(key, _)| key.clone()));
        keys.extend(self.unbound());
        if gone {
            self.volumes.remove(&name);
        } else {
            self.volumes.insert(name.clone(), volume.clone());
            keys.push(Key { namespace: String::new(), name });
        }
        keys
    }

    fn take_claim(&mut self, key: Key, claim: &Arc<Value>, gone: bool) -> Vec<Key> {
        let volumes = self.volumes.iter().filter(|(_, volume)| claim_of(volume).as_ref() == Some(&key));
        let mut keys: Vec<_> = volumes.map(|(name, _)| Key { namespace: String::new(), name: name.clone() }).collect();
        if gone {
            self.claims.remove(&key);
        } else {
            self.claims.insert(key.clone(), claim.clone());
            keys.push(key);
        }
        keys
    }

    fn take_pod(&mut self, key: Key, pod: &Value, gone: bool) -> Vec<Key> {
        let waits = !gone && !has_ended(pod) && text(pod, "/spec/nodeName").is_empty();
        let claims: BTreeSet<_> = if waits { claims_of(pod).collect() } else { BTreeSet::new() };
        if self.used.get(&key).map_or(claims.is_empty(), |before| *before == claims) {
            return Vec::new();
        }
        let keys = claims.iter().map(|name| Key { name: name.clone(), ..key.clone() });
        let keys = keys.filter(|claim| self.claims.get(claim).is_some_and(|claim| !is_completed(claim))).collect();
        if claims.is_empty() {
            self.used.remove(&key)
        } else {
            self.used.insert(key, claims)
        };
        keys
    }

    /// Returns the names of the pods without a node that use a claim.
    fn waiting_pods(&self, claim: &Key) -> Vec<&str> {
        let pods = self.used.range(Key::first_of(&claim.namespace)..);
        let pods = pods.take_while(|(pod, _)| pod.namespace == claim.namespace);
        pods.filter(|(_, claims)| claims.contains(&claim.name)).map(|(pod, _)| &*pod.name).collect()
    }
}

impl Controller for Volumes {
    fn reset(&mut self) {
        *self = Self::new(self.root.take());
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if ![Kind::VOLUME, CLASS, Kind::CLAIM, Kind::POD].iter().any(|kind| kind.is_of(change)) {
            return Vec::new();
        }
        let (object, gone) = (change.object(), change.kind == ChangeKind::Deleted);
        if Kind::VOLUME.is_of(change) {
            return self.take_volume(object, gone);
        }
        if CLASS.is_of(change) {
            let name = text(object, "/metadata/name").to_owned();
            if gone {
                self.classes.remove(&name)
            } else {
                self.classes.insert(name, object.clone())
            };
            return self.unbound().collect();
        }
        let Some(key) = Key::of(object) else { return Vec::new() };
        if Kind::CLAIM.is_of(change) { self.take_claim(key, object, gone) } else { self.take_pod(key, object, gone) }
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        match (&*key.namespace, self.volumes.get(&key.name), self.claims.get(key)) {
            ("", Some(volume), _) => {
                let mut plan = Plan::of(&Kind::VOLUME, volume);
                volumes::decide(self, volume, &mut plan);
                plan
            }
            (_, _, Some(claim)) => {
                let mut plan = Plan::of(&Kind::CLAIM, claim);
                claims::decide(self, key, claim, &mut plan);
                plan
            }
            _ => Plan::default(),
        }
    }
}

/// Returns whether the binding of a claim is complete.
pub(crate) fn is_completed(claim: &Value) -> bool {
    annotation(claim, COMPLETED).is_some()
}

/// Returns the value of an annotation.
pub(crate) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

/// Returns the name of a claim's or volume's class; `None` if it has none. An empty name means that it has no class,
/// not even the default one.
pub(crate) fn class_of(object: &Value) -> Option<&str> {
    annotation(object, "volume.beta.kubernetes.io/storage-class").or(object["spec"]["storageClassName"].as_str())
}

/// Returns the claim that a volume refers to.
pub(crate) fn claim_of(volume: &Value) -> Option<Key> {
    let claim = &volume["spec"]["claimRef"];
    Some(Key { namespace: claim["namespace"].as_str()?.into(), name: claim["name"].as_str()?.into() })
}

/// Returns whether the claims of a class are bound for the node of their first consumer.
pub(crate) fn is_delayed(class: Option<&Value>) -> bool {
    class.is_some_and(|class| text(class, "/volumeBindingMode") == "WaitForFirstConsumer")
}

/// Returns the reference to a claim, for a volume.
pub(crate) fn reference(claim: &Value) -> Value {
    let metadata = &claim["metadata"];
    json!({
        "apiVersion": "v1", "kind": Kind::CLAIM.kind, "namespace": metadata["namespace"],
        "name": metadata["name"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
    })
}
