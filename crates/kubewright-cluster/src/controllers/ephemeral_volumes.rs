//! The claims of generic ephemeral volumes, which are created with their pod and end with it
//! (<https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#generic-ephemeral-volumes>).

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use super::{
    kind::Kind,
    pod::is_active,
    reconcile::{Controller, Key, Plan, Report, Step},
    value::{controller_of, controller_reference, list, text},
};

/// The reason of events about claims that can't be created or used.
const FAILED: &str = "FailedBinding";

/// The controller of the claims. Its keys are pods.
#[derive(Debug, Default)]
pub(crate) struct EphemeralVolumes {
    /// The active pods with such volumes.
    pods: BTreeMap<Key, Arc<Value>>,
    /// The claims, with the UIDs of their controllers.
    claims: BTreeMap<Key, String>,
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
                let controller = controller_of(object).map(|controller| text(controller, "/uid"));
                self.claims.insert(key, controller.unwrap_or_default().to_owned());
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
            let name = text(volume, "/name");
            if let Some(controller) = self.claims.get(&claim) {
                if controller != text(pod, "/metadata/uid") {
                    let Key { namespace, name: pod } = key;
                    let why = format!("was not created for pod {namespace}/{pod} (pod is not owner)");
                    let message = format!("ephemeral volume {name}: PVC {namespace}/{} {why}", claim.name);
                    plan.event(true, FAILED, message);
                    // As in Kubernetes, the volumes after it have to wait.
                    return plan;
                }
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
            let failure = format!("ephemeral volume {name}: create PVC {}: ", claim.name);
            let report = Report { success: None, failures: vec![(FAILED, failure)] };
            plan.steps.push(Step::Create(Kind::CLAIM.address(&key.namespace, ""), body).reported(report));
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_does_not_take_the_claim_of_another() {
        let pod = json!({
            "metadata": {"name": "a", "namespace": "default", "uid": "u"},
            "spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
        });
        let key = Key::of(&pod).expect("a key");
        let mut controller = EphemeralVolumes::default();
        controller.pods.insert(key.clone(), Arc::new(pod));
        let plan = controller.decide(&key, Timestamp::UNIX_EPOCH);
        let [step] = &plan.steps[..] else { panic!("{plan:?}") };
        let (Step::Create(_, claim), Some(report)) = step.parts() else { panic!("{step:?}") };
        assert_eq!(claim["metadata"]["name"], "a-v");
        assert_eq!(report.failures, [("FailedBinding", "ephemeral volume v: create PVC a-v: ".to_owned())]);
        let claim = Key { name: "a-v".into(), ..key.clone() };
        controller.claims.insert(claim.clone(), "other".into());
        let plan = controller.decide(&key, Timestamp::UNIX_EPOCH);
        let [Step::Event { warning: true, reason: "FailedBinding", message }] = &plan.steps[..] else {
            panic!("{plan:?}")
        };
        let expect = "ephemeral volume v: PVC default/a-v was not created for pod default/a (pod is not owner)";
        assert_eq!(message, expect);
        controller.claims.insert(claim, "u".into());
        assert_eq!(controller.decide(&key, Timestamp::UNIX_EPOCH).steps, []);
    }
}
