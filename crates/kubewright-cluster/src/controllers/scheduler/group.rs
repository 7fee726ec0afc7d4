//! The pods that belong together: those that the same services and the same owner select. They are spread over nodes
//! and zones by default. Pure.

use std::collections::BTreeMap;

use kubewright_apimachinery::selector::LabelSelector;
use kubewright_apiserver::StoredObject;
use serde_json::{Value, json};

use super::candidate::Candidate;
use crate::controllers::{
    reconcile::Key,
    value::{controller_of, selector, text},
};

/// Where services are stored.
const SERVICES: &str = "/services";
/// Where the owners of pods are stored that have a selector, with their API versions and kinds.
const OWNERS: [(&str, &str, &str); 3] = [
    ("/replicationcontrollers", "v1", "ReplicationController"),
    ("apps/replicasets", "apps/v1", "ReplicaSet"),
    ("apps/statefulsets", "apps/v1", "StatefulSet"),
];

/// The objects that select pods, by where they are stored. They are parsed when a pod is compared with others.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<(&'static str, Key), StoredObject>);

impl Groups {
    /// Processes a change of an object, if it selects pods.
    pub(super) fn take(&mut self, storage: &str, object: &StoredObject, gone: bool) {
        let mut storages = OWNERS.map(|(storage, ..)| storage).into_iter().chain([SERVICES]);
        let Some(storage) = storages.find(|one| *one == storage) else { return };
        let Some(key) = Key::of(&object.outline()) else { return };
        if gone {
            self.0.remove(&(storage, key));
        } else {
            self.0.insert((storage, key), object.clone());
        }
    }

    /// Returns the selector of the pods that belong together with a pod; `None` if no service and no owner selects it.
    pub(super) fn selector(&self, pod: &Candidate<'_>) -> Option<LabelSelector> {
        let first = (SERVICES, Key::first_of(pod.namespace()));
        let services = self.0.range(first..);
        let services =
            services.take_while(|((storage, key), _)| *storage == SERVICES && key.namespace == pod.namespace());
        let services = services.map(|(_, service)| by_labels(&service.value()));
        // A service without a selector selects nothing.
        let mut selectors: Vec<_> =
            services.filter(|one| !one.is_empty() && one.matches(|key| pod.label(key))).collect();
        selectors.extend(self.selector_of_owner(pod));
        let requirements: Vec<_> = selectors.iter().flat_map(|one| one.requirements().to_vec()).collect();
        (!requirements.is_empty()).then(|| LabelSelector::from_requirements(requirements))
    }

    fn selector_of_owner(&self, pod: &Candidate<'_>) -> Option<LabelSelector> {
        let owner = controller_of(pod.object)?;
        let is_it = |(_, version, kind): &&(&str, &str, &str)| {
            *version == text(owner, "/apiVersion") && *kind == text(owner, "/kind")
        };
        let (storage, version, _) = OWNERS.iter().find(is_it)?;
        let key = Key { namespace: pod.namespace().to_owned(), name: text(owner, "/name").to_owned() };
        let owner = self.0.get(&(*storage, key))?.value();
        Some(if *version == "v1" { by_labels(&owner) } else { selector(&owner, "/spec/selector") })
    }
}

/// Returns the selector of a kind whose selectors are maps of labels.
fn by_labels(object: &Value) -> LabelSelector {
    selector(&json!({"matchLabels": object["spec"]["selector"]}), "")
}
