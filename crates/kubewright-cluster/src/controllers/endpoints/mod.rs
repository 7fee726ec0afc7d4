//! Endpoints of services: EndpointSlices, and Endpoints objects for clients that still read those.
//!
//! Services without a selector are left to their creators, whose Endpoints are mirrored ([`mirroring`]).

mod address;
pub(crate) mod mirroring;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kubewright_apimachinery::{random::Random, selector::LabelSelector};
use kubewright_apiserver::{Change, ChangeKind};
use serde_json::{Value, json};

use self::address::{Endpoint, Group};
use super::{
    kind::Kind,
    objects::Objects,
    reconcile::{Controller, Key, Plan, Step},
    value::{controller_reference, is_deleting, text},
};

const SERVICE: Kind = Kind { group: "", kind: "Service", plural: "services" };
const SLICE: Kind = Kind { group: "discovery.k8s.io", kind: "EndpointSlice", plural: "endpointslices" };
const ENDPOINTS: Kind = Kind { group: "", kind: "Endpoints", plural: "endpoints" };

/// The label with the service of a slice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the controller of a slice.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// The maximum number of endpoints of a slice, Kubernetes' default.
const SLICE_LIMIT: usize = 100;
/// The maximum number of addresses of an Endpoints object.
const ENDPOINTS_LIMIT: usize = 1000;

/// The endpoints controller.
#[derive(Debug)]
pub(crate) struct Endpoints {
    services: BTreeMap<Key, Arc<Value>>,
    pods: Objects,
    /// The slices of this controller, by service.
    slices: BTreeMap<Key, BTreeMap<String, Arc<Value>>>,
    endpoints: BTreeMap<Key, Arc<Value>>,
    random: Random,
}

impl Endpoints {
    /// Creates a controller that draws the names of slices from `random`. `pods` include each pod before its change is
    /// taken.
    pub(crate) fn new(random: Random, pods: Objects) -> Self {
        Self { services: BTreeMap::new(), pods, slices: BTreeMap::new(), endpoints: BTreeMap::new(), random }
    }

    /// Returns the services that select a pod, or have selected it before the change.
    fn concerned(&self, change: &Change) -> Vec<Key> {
        let namespace = text(change.object(), "/metadata/namespace");
        let selects = |selector: LabelSelector| {
            let mut versions = change.previous.iter().chain([&change.stored]);
            versions.any(|version| selector.matches(|key| version.label(key)))
        };
        self.services
            .range(Key::first_of(namespace)..)
            .take_while(|(service, _)| service.namespace == namespace)
            .filter(|(_, service)| selector(service).is_some_and(selects))
            .map(|(service, _)| service.clone())
            .collect()
    }

    fn take_slice(&mut self, key: Key, change: &Change) -> Vec<Key> {
        let labels = &change.object()["metadata"]["labels"];
        let service = labels[SERVICE_NAME].as_str().filter(|_| labels[MANAGED_BY] == MANAGER);
        let Some(service) = service else { return Vec::new() };
        let service = Key { namespace: key.namespace, name: service.into() };
        let slices = self.slices.entry(service.clone()).or_default();
        if change.kind == ChangeKind::Deleted {
            slices.remove(&key.name);
            if slices.is_empty() {
                self.slices.remove(&service);
            }
        } else {
            slices.insert(key.name, change.object().clone());
        }
        vec![service]
    }
}

fn put(objects: &mut BTreeMap<Key, Arc<Value>>, key: &Key, change: &Change) {
    if change.kind == ChangeKind::Deleted {
        objects.remove(key);
    } else {
        objects.insert(key.clone(), change.object().clone());
    }
}

impl Controller for Endpoints {
    fn reset(&mut self) {
        *self = Self::new(self.random.clone(), self.pods.clone());
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if Kind::POD.is_of(change) {
            return self.concerned(change);
        }
        if ![SERVICE, ENDPOINTS, SLICE].iter().any(|kind| kind.is_of(change)) {
            return Vec::new();
        }
        let Some(key) = Key::of(change.object()) else { return Vec::new() };
        if SERVICE.is_of(change) {
            put(&mut self.services, &key, change);
            vec![key]
        } else if ENDPOINTS.is_of(change) {
            put(&mut self.endpoints, &key, change);
            vec![key]
        } else {
            self.take_slice(key, change)
        }
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        let slices: Vec<&Value> = self.slices.get(key).into_iter().flatten().map(|(_, slice)| &**slice).collect();
        let service = self.services.get(key).filter(|service| !is_deleting(service));
        let Some((service, selector)) = service.and_then(|service| Some((service, selector(service)?))) else {
            // The garbage collector deletes the slices of a deleted service; the Endpoints object has no owner.
            let mut plan = Plan::default();
            if service.is_none()
                && let Some(endpoints) = self.endpoints.get(key).filter(|one| is_kept(one))
            {
                plan.steps.push(Step::delete(&ENDPOINTS, endpoints));
            }
            return plan;
        };
        let pods = self.pods.selected(&key.namespace, &selector);
        let pods: Vec<&Value> = pods.iter().map(|pod| &**pod).collect();
        let mut plan = Plan::of(&SERVICE, service);
        let groups = address::groups(service, &pods);
        self.write_slices(service, &slices, &groups, &mut plan);
        write_endpoints(service, self.endpoints.get(key).map(|one| &**one), &groups, &mut plan);
        plan
    }
}

/// Returns the selector of a service; `None` if it has none or is of the type ExternalName.
fn selector(service: &Value) -> Option<LabelSelector> {
    let labels = service["spec"]["selector"].as_object().filter(|labels| !labels.is_empty())?;
    let external = service["spec"]["type"] == "ExternalName";
    if external { None } else { LabelSelector::from_object(&json!({"matchLabels": labels})).ok() }
}

/// Returns whether the Endpoints object belongs to this controller.
fn is_kept(endpoints: &Value) -> bool {
    endpoints["metadata"]["labels"][address::ENDPOINTS_MANAGED_BY] == address::ENDPOINTS_MANAGER
}

impl Endpoints {
    /// Writes the slices. Existing ones are filled first, in the order of their names.
    fn write_slices(&self, service: &Value, slices: &[&Value], groups: &[Group<'_>], plan: &mut Plan) {
        let mut wanted = Vec::new();
        for group in groups {
            let endpoints: Vec<Value> = group.endpoints.iter().map(Endpoint::in_slice).collect();
            if endpoints.is_empty() {
                wanted.push((&group.ports, Vec::new()));
            }
            wanted.extend(endpoints.chunks(SLICE_LIMIT).map(|chunk| (&group.ports, chunk.to_vec())));
        }
        let namespace = text(service, "/metadata/namespace");
        let mut free = slices.iter().copied().filter(|slice| !is_deleting(slice));
        for (ports, endpoints) in wanted {
            let metadata = json!({"labels": labels(service), "ownerReferences": [owner(service)]});
            let content = json!({"metadata": metadata, "endpoints": endpoints, "ports": ports});
            match free.next() {
                Some(slice) if says(slice, &content) => {}
                Some(slice) => plan.steps.push(Step::change(&SLICE, slice, content)),
                None => {
                    let mut slice = content;
                    slice["apiVersion"] = SLICE.api_version().into();
                    slice["kind"] = SLICE.kind.into();
                    slice["addressType"] = "IPv4".into();
                    let name = format!("{}-{}", text(service, "/metadata/name"), self.random.suffix(5));
                    slice["metadata"]["name"] = name.into();
                    plan.steps.push(Step::Create(SLICE.address(namespace, ""), slice));
                }
            }
        }
        plan.steps.extend(free.map(|slice| Step::delete(&SLICE, slice)));
    }
}

fn owner(service: &Value) -> Value {
    controller_reference(service, &SERVICE.api_version(), SERVICE.kind)
}

/// Returns the labels of a slice: the service's own, its name, and the controller's.
fn labels(service: &Value) -> Value {
    let mut labels = service["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(SERVICE_NAME.into(), service["metadata"]["name"].clone());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    if service["spec"]["clusterIP"] == "None" {
        labels.insert("service.kubernetes.io/headless".into(), "".into());
    }
    labels.into()
}

/// Returns whether an object has this content.
fn says(object: &Value, content: &Value) -> bool {
    let or_empty = |value: &Value| if value.is_null() { json!([]) } else { value.clone() };
    let same = |field: &str| or_empty(&object[field]) == or_empty(&content[field]);
    let metadata = |field: &str| object["metadata"][field] == content["metadata"][field];
    same("endpoints") && same("ports") && metadata("labels") && metadata("ownerReferences")
}

/// Writes the Endpoints object of the service's name, unless it belongs to another controller.
fn write_endpoints(service: &Value, present: Option<&Value>, groups: &[Group<'_>], plan: &mut Plan) {
    let subsets = address::subsets(groups, ENDPOINTS_LIMIT);
    let mut labels = service["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(address::ENDPOINTS_MANAGED_BY.into(), address::ENDPOINTS_MANAGER.into());
    if service["spec"]["clusterIP"] == "None" {
        labels.insert("service.kubernetes.io/headless".into(), "".into());
    }
    let content = json!({"metadata": {"labels": labels}, "subsets": subsets});
    let Some(present) = present else {
        let mut endpoints = content;
        endpoints["apiVersion"] = ENDPOINTS.api_version().into();
        endpoints["kind"] = ENDPOINTS.kind.into();
        endpoints["metadata"]["name"] = service["metadata"]["name"].clone();
        let address = ENDPOINTS.address(text(service, "/metadata/namespace"), "");
        plan.steps.push(Step::Create(address, endpoints));
        return;
    };
    let or_empty = |value: &Value| if value.is_null() { json!([]) } else { value.clone() };
    let differs = or_empty(&present["subsets"]) != content["subsets"]
        || present["metadata"]["labels"] != content["metadata"]["labels"];
    if differs {
        plan.steps.push(Step::change(&ENDPOINTS, present, content));
    }
}
