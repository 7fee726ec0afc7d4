//! Endpoints of services: EndpointSlices, and Endpoints objects for clients that still read those.
//!
//! Services without a selector are left to their creators, whose Endpoints are mirrored ([`mirroring`]).

mod address;
mod hints;
pub(crate) mod mirroring;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use jiff::Timestamp;
use kubewright_apimachinery::selector::LabelSelector;
use kubewright_apiserver::{Change, ChangeKind, StoredObject};
use serde_json::{Map, Value, json};

use self::{address::Group, hints::Traffic};
use super::{
    kind::Kind,
    objects::Objects,
    reconcile::{Controller, Key, Plan, Step, StepKind},
    value::{condition, controller_reference, is_deleting, text},
};

const SERVICE: Kind = Kind { group: "", kind: "Service", plural: "services" };
const SLICE: Kind = Kind { group: "discovery.k8s.io", kind: "EndpointSlice", plural: "endpointslices" };
const ENDPOINTS: Kind = Kind { group: "", kind: "Endpoints", plural: "endpoints" };

/// The label with the service of a slice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the controller of a slice.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// The annotation with the time of the change that has led to the present state, by which Kubernetes measures its
/// delay.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The label of a node with its zone.
const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of headless services' slices and endpoints.
const HEADLESS: &str = "service.kubernetes.io/headless";
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
    slices: Slices,
    endpoints: BTreeMap<Key, Arc<Value>>,
    /// The services that are gone, and whose Endpoints follow, whoever has written them.
    abandoned: BTreeSet<Key>,
    /// The zones of nodes.
    zones: BTreeMap<String, String>,
    /// The earliest change of each service that hasn't been written yet.
    triggers: BTreeMap<Key, String>,
}

impl Endpoints {
    /// Creates a controller. `pods` include each pod before its change is taken.
    pub(crate) fn new(pods: Objects) -> Self {
        let (services, slices, endpoints, abandoned, zones, triggers) = Default::default();
        Self { services, pods, slices, endpoints, abandoned, zones, triggers }
    }

    fn take_service(&mut self, key: &Key, change: &Change) {
        if change.kind == ChangeKind::Deleted {
            self.triggers.remove(key);
            if self.endpoints.contains_key(key) {
                self.abandoned.insert(key.clone());
            }
        } else {
            self.abandoned.remove(key);
            if change.previous.is_none() {
                self.trigger(key, text(change.object(), "/metadata/creationTimestamp"));
            }
        }
        put(&mut self.services, key, change);
    }

    fn take_pod(&mut self, change: &Change) -> Vec<Key> {
        let concerned = self.concerned(change);
        let readied = |pod: &Value| condition(pod, "Ready").map(|ready| text(ready, "/lastTransitionTime").to_owned());
        let before = change.previous.as_ref().and_then(|before| readied(&before.value()));
        if !concerned.is_empty()
            && change.kind != ChangeKind::Deleted
            && let Some(time) = readied(change.object()).filter(|time| before.as_ref() != Some(time))
        {
            concerned.iter().for_each(|service| self.trigger(service, &time));
        }
        concerned
    }

    fn trigger(&mut self, service: &Key, time: &str) {
        let earliest = self.triggers.entry(service.clone()).or_insert_with(|| time.to_owned());
        if time < earliest.as_str() {
            *earliest = time.to_owned();
        }
    }

    /// Processes a change of a node, and returns all services if its zone has changed.
    fn take_node(&mut self, change: &Change) -> Vec<Key> {
        let node = change.object();
        let name = text(node, "/metadata/name");
        let zone = node["metadata"]["labels"][ZONE].as_str().filter(|_| change.kind != ChangeKind::Deleted);
        if self.zones.get(name).map(String::as_str) == zone {
            return Vec::new();
        }
        match zone {
            Some(zone) => self.zones.insert(name.into(), zone.into()),
            None => self.zones.remove(name),
        };
        self.services.keys().cloned().collect()
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
}

/// The slices of a controller, by service.
type Slices = BTreeMap<Key, BTreeMap<String, Arc<Value>>>;

/// Keeps a slice under its service, if it has the labels of the controller. Returns the services that it concerns: also
/// the one whose slice it was before its labels changed.
fn take_slice(slices: &mut Slices, manager: &str, key: &Key, change: &Change) -> Vec<Key> {
    let owner = |version: &StoredObject| {
        let service = version.label(SERVICE_NAME).filter(|_| version.label(MANAGED_BY) == Some(manager))?;
        Some(Key { namespace: key.namespace.clone(), name: service.to_owned() })
    };
    let (before, now) = (change.previous.as_ref().and_then(owner), owner(&change.stored));
    for owner in before.iter().chain(&now) {
        if let Entry::Occupied(mut entry) = slices.entry(owner.clone()) {
            entry.get_mut().remove(&key.name);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }
    if let Some(owner) = now.as_ref().filter(|_| change.kind != ChangeKind::Deleted) {
        slices.entry(owner.clone()).or_default().insert(key.name.clone(), change.object().clone());
    }
    let also = before.filter(|before| now.as_ref() != Some(before));
    now.into_iter().chain(also).collect()
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
        *self = Self::new(self.pods.clone());
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
        if Kind::POD.is_of(change) {
            return self.take_pod(change);
        }
        if Kind::NODE.is_of(change) {
            return self.take_node(change);
        }
        if ![SERVICE, ENDPOINTS, SLICE].iter().any(|kind| kind.is_of(change)) {
            return Vec::new();
        }
        let Some(key) = Key::of(change.object()) else { return Vec::new() };
        if SERVICE.is_of(change) {
            self.take_service(&key, change);
            vec![key]
        } else if ENDPOINTS.is_of(change) {
            if change.kind == ChangeKind::Deleted {
                self.abandoned.remove(&key);
            }
            put(&mut self.endpoints, &key, change);
            vec![key]
        } else {
            take_slice(&mut self.slices, MANAGER, &key, change)
        }
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        let slices: Vec<&Value> = self.slices.get(key).into_iter().flatten().map(|(_, slice)| &**slice).collect();
        let service = self.services.get(key).filter(|service| !is_deleting(service));
        let Some((service, selector)) = service.and_then(|service| Some((service, selector(service)?))) else {
            // The garbage collector deletes the slices of a deleted service; the Endpoints object has no owner.
            let mut plan = Plan::default();
            if service.is_none()
                && let Some(endpoints) =
                    self.endpoints.get(key).filter(|one| is_kept(one) || self.abandoned.contains(key))
            {
                plan.steps.push(Step::delete(&ENDPOINTS, endpoints));
            }
            return plan;
        };
        let pods = self.pods.selected(&key.namespace, &selector);
        let pods: Vec<&Value> = pods.iter().map(|pod| &**pod).collect();
        let mut plan = Plan::of(&SERVICE, service);
        let groups = address::groups(service, &pods);
        let trigger = self.triggers.get(key).map(String::as_str);
        let traffic = Traffic { zones: &self.zones, distribution: text(service, "/spec/trafficDistribution") };
        write_slices(service, &slices, &groups, &traffic, trigger, &mut plan);
        write_endpoints(service, self.endpoints.get(key).map(|one| &**one), &groups, trigger, &mut plan);
        plan
    }

    fn finished(&mut self, key: &Key, failure: Option<(StepKind, String)>) {
        if failure.is_none() {
            self.triggers.remove(key);
        }
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

/// Writes the slices. Existing ones are filled first, in the order of their names.
fn write_slices(
    service: &Value,
    slices: &[&Value],
    groups: &[Group<'_>],
    traffic: &Traffic<'_>,
    trigger: Option<&str>,
    plan: &mut Plan,
) {
    let mut wanted = Vec::new();
    for group in groups {
        let endpoints: Vec<Value> = group.endpoints.iter().map(|one| traffic.with_hints(one.in_slice())).collect();
        if endpoints.is_empty() {
            wanted.push((&group.ports, Vec::new()));
        }
        wanted.extend(endpoints.chunks(SLICE_LIMIT).map(|chunk| (&group.ports, chunk.to_vec())));
    }
    let namespace = text(service, "/metadata/namespace");
    let mut free = slices.iter().copied().filter(|slice| !is_deleting(slice));
    for (ports, endpoints) in wanted {
        let metadata = json!({"labels": labels(service), "ownerReferences": [owner(service)]});
        let mut content = json!({"metadata": metadata, "endpoints": endpoints, "ports": ports});
        match free.next() {
            Some(slice) if says(slice, &content) => {}
            Some(slice) => {
                remove_others(&mut content, slice, "labels");
                content["metadata"]["annotations"][TRIGGER] = trigger.into();
                plan.steps.push(Step::change(&SLICE, slice, content));
            }
            None => {
                let mut slice = content;
                slice["apiVersion"] = SLICE.api_version().into();
                slice["kind"] = SLICE.kind.into();
                slice["addressType"] = "IPv4".into();
                slice["metadata"]["generateName"] = format!("{}-", text(service, "/metadata/name")).into();
                annotate(&mut slice, trigger);
                plan.steps.push(Step::Create(SLICE.address(namespace, ""), slice));
            }
        }
    }
    plan.steps.extend(free.map(|slice| Step::delete(&SLICE, slice)));
}

/// Gives a new object the annotation about the change that has caused it.
fn annotate(object: &mut Value, trigger: Option<&str>) {
    if let Some(trigger) = trigger {
        object["metadata"]["annotations"][TRIGGER] = trigger.into();
    }
}

/// Makes a merge patch with the wanted metadata remove other labels, or annotations, of the present object.
fn remove_others(wanted: &mut Value, present: &Value, field: &str) {
    for (name, _) in present["metadata"][field].as_object().into_iter().flatten() {
        if wanted["metadata"][field].get(name).is_none() {
            wanted["metadata"][field][name] = Value::Null;
        }
    }
}

fn owner(service: &Value) -> Value {
    controller_reference(service, &SERVICE.api_version(), SERVICE.kind)
}

/// Returns the labels of a slice: the service's own, its name, and the controller's.
fn labels(service: &Value) -> Value {
    let mut labels = own_labels(service);
    labels.insert(SERVICE_NAME.into(), service["metadata"]["name"].clone());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    labels.into()
}

/// Returns the service's own labels. Whether it is headless isn't up to them.
fn own_labels(service: &Value) -> Map<String, Value> {
    let mut labels = service["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    if service["spec"]["clusterIP"] == "None" {
        labels.insert(HEADLESS.into(), "".into());
    } else {
        labels.remove(HEADLESS);
    }
    labels
}

/// Returns whether an object has this content.
fn says(object: &Value, content: &Value) -> bool {
    let or_empty = |value: &Value| if value.is_null() { json!([]) } else { value.clone() };
    let same = |field: &str| or_empty(&object[field]) == or_empty(&content[field]);
    let metadata = |field: &str| object["metadata"][field] == content["metadata"][field];
    same("endpoints") && same("ports") && metadata("labels") && metadata("ownerReferences")
}

/// Writes the Endpoints object of the service's name, unless it belongs to another controller.
fn write_endpoints(
    service: &Value,
    present: Option<&Value>,
    groups: &[Group<'_>],
    trigger: Option<&str>,
    plan: &mut Plan,
) {
    let subsets = address::subsets(groups, ENDPOINTS_LIMIT);
    let mut labels = own_labels(service);
    labels.insert(address::ENDPOINTS_MANAGED_BY.into(), address::ENDPOINTS_MANAGER.into());
    let mut content = json!({"metadata": {"labels": labels}, "subsets": subsets});
    let Some(present) = present else {
        let mut endpoints = content;
        endpoints["apiVersion"] = ENDPOINTS.api_version().into();
        endpoints["kind"] = ENDPOINTS.kind.into();
        endpoints["metadata"]["name"] = service["metadata"]["name"].clone();
        annotate(&mut endpoints, trigger);
        let address = ENDPOINTS.address(text(service, "/metadata/namespace"), "");
        plan.steps.push(Step::Create(address, endpoints));
        return;
    };
    let or_empty = |value: &Value| if value.is_null() { json!([]) } else { value.clone() };
    let differs = or_empty(&present["subsets"]) != content["subsets"]
        || present["metadata"]["labels"] != content["metadata"]["labels"];
    if differs {
        remove_others(&mut content, present, "labels");
        content["metadata"]["annotations"][TRIGGER] = trigger.into();
        plan.steps.push(Step::change(&ENDPOINTS, present, content));
    }
}
