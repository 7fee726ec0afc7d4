//! EndpointSlices of Endpoints that users write for services without a selector
//! (<https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#endpointslice-mirroring>).

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use jiff::Timestamp;
use kubewright_apiserver::Change;
use serde_json::{Map, Value, json};

use super::{
    super::{
        reconcile::{Controller, Key, Plan, Step},
        value::{controller_reference, is_deleting, list, text},
    },
    ENDPOINTS, ENDPOINTS_LIMIT, MANAGED_BY, SERVICE, SERVICE_NAME, SLICE, Slices, put, remove_others, take_slice,
};

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// The label of Endpoints that aren't mirrored, with the value `true`.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// The annotation of Endpoints that only elect a leader.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// The annotations that aren't mirrored.
const OWN_ANNOTATIONS: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];

/// The mirroring controller.
#[derive(Debug, Default)]
pub(crate) struct Mirroring {
    services: BTreeMap<Key, Arc<Value>>,
    endpoints: BTreeMap<Key, Arc<Value>>,
    /// The slices of this controller, by service.
    slices: Slices,
}

impl Mirroring {
    /// Returns the Endpoints of this name if they are mirrored.
    fn mirrored(&self, key: &Key) -> Option<&Value> {
        let is_without_selector =
            |service: &&Arc<Value>| service["spec"]["selector"].as_object().is_none_or(Map::is_empty);
        self.services.get(key).filter(is_without_selector)?;
        let endpoints = self.endpoints.get(key)?;
        let metadata = &endpoints["metadata"];
        let is_skipped = metadata["labels"][SKIP_MIRROR] == "true" || !metadata["annotations"][LEADER].is_null();
        (!is_skipped).then_some(&**endpoints)
    }
}

impl Controller for Mirroring {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn take(&mut self, change: &Change) -> Vec<Key> {
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
            take_slice(&mut self.slices, MANAGER, &key, change)
        }
    }

    fn decide(&self, key: &Key, _now: Timestamp) -> Plan {
        let slices = self.slices.get(key).into_iter().flatten().map(|(_, slice)| &**slice);
        let mut free: Vec<&Value> = slices.filter(|slice| !is_deleting(slice)).collect();
        let Some(endpoints) = self.mirrored(key) else {
            return Plan {
                steps: free.into_iter().map(|slice| Step::delete(&SLICE, slice)).collect(),
                ..Plan::default()
            };
        };
        let mut plan = Plan::of(&ENDPOINTS, endpoints);
        let mut missing = Vec::new();
        for mirror in mirrors(endpoints, &mut plan) {
            let wanted = mirror.slice(endpoints);
            match free.iter().position(|slice| is_like(slice, &wanted)) {
                Some(place) => plan.steps.extend(update(free.remove(place), wanted)),
                None => missing.push(wanted),
            }
        }
        if is_deleting(endpoints) {
            missing.clear();
        }
        // The type of addresses of a slice can't be changed.
        for wanted in missing {
            match free.iter().position(|slice| slice["addressType"] == wanted["addressType"]) {
                Some(place) => plan.steps.extend(update(free.remove(place), wanted)),
                None => plan.steps.push(Step::Create(SLICE.address(&key.namespace, ""), wanted)),
            }
        }
        plan.steps.extend(free.into_iter().map(|slice| Step::delete(&SLICE, slice)));
        plan
    }
}

/// The endpoints of one slice.
struct Mirror {
    address_type: &'static str,
    ports: Vec<Value>,
    endpoints: Vec<Value>,
}

impl Mirror {
    /// Returns the slice.
    fn slice(self, endpoints: &Value) -> Value {
        let metadata = &endpoints["metadata"];
        let mut labels = metadata["labels"].as_object().cloned().unwrap_or_default();
        labels.insert(SERVICE_NAME.into(), metadata["name"].clone());
        labels.insert(MANAGED_BY.into(), MANAGER.into());
        let mut annotations = metadata["annotations"].as_object().cloned().unwrap_or_default();
        annotations.retain(|name, _| !OWN_ANNOTATIONS.contains(&name.as_str()));
        let owner = controller_reference(endpoints, &ENDPOINTS.api_version(), ENDPOINTS.kind);
        json!({
            "apiVersion": SLICE.api_version(), "kind": SLICE.kind,
            "metadata": {
                "generateName": format!("{}-", text(metadata, "/name")),
                "labels": labels, "annotations": annotations, "ownerReferences": [owner],
            },
            "addressType": self.address_type, "endpoints": self.endpoints, "ports": self.ports,
        })
    }
}

/// Returns what Endpoints are mirrored to: for each set of ports, a slice for each family of addresses. Adds events
/// about addresses that are left out to the plan.
fn mirrors(endpoints: &Value, plan: &mut Plan) -> Vec<Mirror> {
    let (mut mirrors, mut invalid, mut skipped) = (Vec::new(), 0, 0);
    for (ports, addresses) in repack(list(endpoints, "/subsets")) {
        let mut families = [("IPv4", Vec::new()), ("IPv6", Vec::new())];
        // Ready addresses come first, because not all may be mirrored.
        let (ready, others): (Vec<_>, Vec<_>) = addresses.into_values().partition(|(_, is_ready)| *is_ready);
        for (count, (address, is_ready)) in ready.into_iter().chain(others).enumerate() {
            if count >= ENDPOINTS_LIMIT {
                skipped += 1;
                continue;
            }
            match text(address, "/ip").parse::<IpAddr>().map(|ip| ip.to_canonical()) {
                Ok(ip) => families[usize::from(ip.is_ipv6())].1.push(endpoint(ip, address, is_ready)),
                Err(_) => invalid += 1,
            }
        }
        let families = families.into_iter().filter(|(_, endpoints)| !endpoints.is_empty());
        mirrors.extend(families.map(|(address_type, endpoints)| Mirror {
            address_type,
            ports: ports.iter().map(port).collect(),
            endpoints,
        }));
    }
    if invalid > 0 {
        let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        plan.event(true, "InvalidIPAddress", message);
    }
    if skipped > 0 {
        let skipped = skipped + invalid;
        let message = format!(
            "A max of {ENDPOINTS_LIMIT} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were skipped"
        );
        plan.event(true, "TooManyAddressesToMirror", message);
    }
    mirrors
}

/// Addresses with whether they are ready, by address and UID of the target.
type Addresses<'a> = BTreeMap<(&'a str, &'a str), (&'a Value, bool)>;

/// Returns subsets in canonical form: no two of them have the same addresses, and no port belongs to two of them. An
/// address that is both ready and not ready is not ready.
fn repack(subsets: &[Value]) -> Vec<(Vec<Value>, Addresses<'_>)> {
    // By port; a subset without ports has one that is null.
    let mut by_port: BTreeMap<String, (Value, Addresses<'_>)> = BTreeMap::new();
    for subset in subsets {
        let none = [Value::Null];
        let ports = Some(list(subset, "/ports")).filter(|ports| !ports.is_empty()).unwrap_or(&none);
        for port in ports {
            let (_, all) = by_port.entry(port.to_string()).or_insert_with(|| (port.clone(), Addresses::new()));
            for (field, is_ready) in [("/addresses", true), ("/notReadyAddresses", false)] {
                for address in list(subset, field) {
                    let known = all
                        .entry((text(address, "/ip"), text(address, "/targetRef/uid")))
                        .or_insert((address, is_ready));
                    known.1 &= is_ready;
                }
            }
        }
    }
    let mut packed: Vec<(Vec<Value>, Addresses<'_>)> = Vec::new();
    for (_, (port, addresses)) in by_port {
        let of_port = Some(port).filter(|port| !port.is_null());
        let same = |known: &Addresses<'_>| {
            known.keys().eq(addresses.keys())
                && known.values().map(|(_, ready)| ready).eq(addresses.values().map(|(_, ready)| ready))
        };
        match packed.iter_mut().find(|(_, known)| same(known)) {
            Some((ports, _)) => ports.extend(of_port),
            None => packed.push((of_port.into_iter().collect(), addresses)),
        }
    }
    packed
}

fn endpoint(ip: IpAddr, address: &Value, is_ready: bool) -> Value {
    let mut endpoint = json!({"addresses": [ip.to_string()], "conditions": {"ready": is_ready}});
    for name in ["hostname", "nodeName", "targetRef"] {
        if !address[name].is_null() {
            endpoint[name] = address[name].clone();
        }
    }
    endpoint
}

/// Returns the port of a slice. As in Kubernetes, it always has a name.
fn port(port: &Value) -> Value {
    let protocol = port["protocol"].as_str().unwrap_or("TCP");
    let mut written = json!({"name": text(port, "/name"), "port": port["port"], "protocol": protocol});
    if !port["appProtocol"].is_null() {
        written["appProtocol"] = port["appProtocol"].clone();
    }
    written
}

/// Returns whether a slice has addresses of the same type and the same ports.
fn is_like(slice: &Value, wanted: &Value) -> bool {
    let ports = |slice: &Value| {
        let mut ports: Vec<_> = list(slice, "/ports").iter().map(|found| port(found).to_string()).collect();
        ports.sort_unstable();
        ports
    };
    slice["addressType"] == wanted["addressType"] && ports(slice) == ports(wanted)
}

/// Returns the step that makes a slice what is wanted, if it isn't.
fn update(slice: &Value, mut wanted: Value) -> Option<Step> {
    let or_empty = |value: &Value| if value.is_null() { json!({}) } else { value.clone() };
    let is_same = ["labels", "annotations", "ownerReferences"]
        .iter()
        .all(|field| or_empty(&slice["metadata"][*field]) == wanted["metadata"][*field]);
    if is_same && is_like(slice, &wanted) && list(slice, "/endpoints") == list(&wanted, "/endpoints") {
        return None;
    }
    for field in ["labels", "annotations"] {
        remove_others(&mut wanted, slice, field);
    }
    let metadata = &wanted["metadata"];
    let patch = json!({
        "metadata": {
            "labels": metadata["labels"], "annotations": metadata["annotations"],
            "ownerReferences": metadata["ownerReferences"],
        },
        "endpoints": wanted["endpoints"], "ports": wanted["ports"],
    });
    Some(Step::change(&SLICE, slice, patch))
}
