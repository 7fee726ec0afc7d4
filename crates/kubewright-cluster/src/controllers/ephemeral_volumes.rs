//! The claims of generic ephemeral volumes, which are created with their pod and end with it
//! (<https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#generic-ephemeral-volumes>).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    pod::is_active,
    reconcile::{Controller, Key, Plan, Step},
    value::{controller_reference, list, text},
};

/// The controller of the claims. Its keys are pods.
#[derive(Debug, Default)]
pub(crate) struct EphemeralVolumes {
    /// The active pods with such volumes.
    pods: BTreeMap<Key, Arc<Value>>,
    claims: BTreeSet<Key>,
}

/// Returns the volumes of a pod for which claims are created.
fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    list(pod, "/spec/volumes").iter().filter(|volume| volume["ephemeral"]["volumeClaimTemplate"].is_object())
}

/// Returns the key of a volume's claim.
fn claim_of(pod: &Key, volume: &Value) -> Key {
    Key { namespace: pod.namespace.clone(), name: format!("{}-{}", pod.name, text(volume, "/name")) }
}

impl Controller for EphemeralVolumes {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if ![Kind::CLAIM, Kind::POD].iter().any(|kind| kind.is_of(change)) {
            return Vec::new();
        }
        let (object, gone) = (change.object(), change.kind == ChangeKind::Deleted);
        let Some(key) = Key::of(object) else { return Vec::new() };
        if Kind::CLAIM.is_of(change) {
            if !gone {
                self.claims.insert(key);
                return Vec::new();
            }
            self.claims.remove(&key);
            let waits = |(pod, object): &(&Key, &Arc<Value>)| volumes(object).any(|one| claim_of(pod, one) == key);
            return self.pods.iter().filter(waits).map(|(pod, _)| pod.clone()).collect();
        }
        if !Kind::POD.is_of(change) {
            return Vec::new();
        }
        if gone || !is_active(object) || volumes(object).next().is_none() {
            self.pods.remove(&key);
            return Vec::new();
        }
        self.pods.insert(key.clone(), object.clone());
        vec![key]
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        let Some(pod) = self.pods.get(key) else { return Plan::default() };
        let mut plan = Plan::of(&Kind::POD, pod);
        for volume in volumes(pod) {
            let claim = claim_of(key, volume);
            if self.claims.contains(&claim) {
                continue;
            }
            let template = &volume["ephemeral"]["volumeClaimTemplate"];
            let owner = controller_reference(pod, "v1", Kind::POD.kind);
            let mut metadata = json!({"name": claim.name, "ownerReferences": [owner]});
            for field in ["labels", "annotations"] {
                if let Some(value) = template["metadata"].get(field).filter(|value| value.is_object()) {
                    metadata[field] = value.clone();
                }
            }
            let kind = Kind::CLAIM.kind;
            let body = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": template["spec"]});
            plan.steps.push(Step::Create(Kind::CLAIM.address(&key.namespace, ""), body));
        }
        plan
    }
}
