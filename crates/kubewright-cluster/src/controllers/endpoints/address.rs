//! Pods as endpoints of a service: their addresses, ports and conditions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::controllers::{
    pod::{has_ended, is_ready},
    value::{flag, int, is_deleting, list, text},
};

/// The label of an Endpoints object that names its controller.
pub(super) const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The value of that label for this controller.
pub(super) const ENDPOINTS_MANAGER: &str = "endpoint-controller";

/// Endpoints with the same port numbers.
#[derive(Debug, PartialEq)]
pub(super) struct Group<'a> {
    /// The ports, in the format of slices.
    pub(super) ports: Vec<Value>,
    /// The endpoints, ordered by the names of their pods.
    pub(super) endpoints: Vec<Endpoint<'a>>,
}

/// A pod behind a service.
#[derive(Debug, PartialEq)]
pub(super) struct Endpoint<'a> {
    pod: &'a Value,
    /// Whether it may receive connections. Always true with `publishNotReadyAddresses`.
    ready: bool,
    serving: bool,
    terminating: bool,
    /// The pod's host name in the service's domain.
    hostname: Option<&'a str>,
}

impl Endpoint<'_> {
    /// Returns the endpoint in the format of slices.
    pub(super) fn in_slice(&self) -> Value {
        let mut endpoint = json!({
            "addresses": [text(self.pod, "/status/podIP")],
            "conditions": {"ready": self.ready, "serving": self.serving, "terminating": self.terminating},
            "targetRef": reference(self.pod),
        });
        let node = Some(text(self.pod, "/spec/nodeName")).filter(|node| !node.is_empty());
        for (field, value) in [("hostname", self.hostname), ("nodeName", node)] {
            if let Some(value) = value {
                endpoint[field] = value.into();
            }
        }
        endpoint
    }

    /// Returns the endpoint in the format of Endpoints objects.
    fn in_subset(&self) -> Value {
        let mut address = json!({
            "ip": text(self.pod, "/status/podIP"),
            "targetRef": reference(self.pod),
            "nodeName": text(self.pod, "/spec/nodeName"),
        });
        if let Some(hostname) = self.hostname {
            address["hostname"] = hostname.into();
        }
        address
    }
}

fn reference(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    json!({"kind": "Pod", "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]})
}

/// Returns the pods behind a service, grouped by equal ports. There is at least one group, so that every service has a
/// slice.
pub(super) fn groups<'a>(service: &'a Value, pods: &[&'a Value]) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<String, Group<'a>> = BTreeMap::new();
    let reachable = |pod: &&&Value| !text(pod, "/status/podIP").is_empty() && !has_ended(pod);
    for pod in pods.iter().filter(reachable) {
        let ports = ports(service, pod);
        let group = groups.entry(json!(ports).to_string());
        group.or_insert_with(|| Group { ports, endpoints: Vec::new() }).endpoints.push(endpoint(service, pod));
    }
    if groups.is_empty() {
        return vec![Group { ports: Vec::new(), endpoints: Vec::new() }];
    }
    groups.into_values().collect()
}

fn endpoint<'a>(service: &Value, pod: &'a Value) -> Endpoint<'a> {
    let (serving, terminating) = (is_ready(pod), is_deleting(pod));
    let always = flag(service, "/spec/publishNotReadyAddresses");
    let named = text(pod, "/spec/subdomain") == text(service, "/metadata/name");
    let hostname = Some(text(pod, "/spec/hostname")).filter(|name| named && !name.is_empty());
    Endpoint { pod, ready: always || serving && !terminating, serving, terminating, hostname }
}

/// Returns a service's target ports in a pod. A named port that the pod doesn't have is left out.
fn ports(service: &Value, pod: &Value) -> Vec<Value> {
    let mut ports = Vec::new();
    for port in list(service, "/spec/ports") {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let number = match &port["targetPort"] {
            Value::String(name) => named_port(pod, name, protocol),
            Value::Number(number) => number.as_i64().filter(|number| *number != 0).or_else(|| Some(int(port, "/port"))),
            _ => Some(int(port, "/port")),
        };
        if let Some(number) = number {
            let name = port["name"].as_str().unwrap_or_default();
            let mut found = json!({"name": name, "port": number, "protocol": protocol});
            if let Some(application) = port["appProtocol"].as_str() {
                found["appProtocol"] = application.into();
            }
            ports.push(found);
        }
    }
    ports
}

fn named_port(pod: &Value, name: &str, protocol: &str) -> Option<i64> {
    let sidecars = list(pod, "/spec/initContainers").iter().filter(|one| text(one, "/restartPolicy") == "Always");
    let containers =
        list(pod, "/spec/containers").iter().chain(sidecars).flat_map(|container| list(container, "/ports"));
    let same = |port: &&Value| port["name"] == name && port["protocol"].as_str().unwrap_or("TCP") == protocol;
    containers.filter(same).find_map(|port| port["containerPort"].as_i64())
}

/// Returns the groups in the format of an Endpoints object, with at most `limit` addresses. Terminating pods are left
/// out.
pub(super) fn subsets(groups: &[Group<'_>], mut limit: usize) -> Value {
    let mut subsets = Vec::new();
    for group in groups {
        let mut subset = json!({});
        for (field, ready) in [("addresses", true), ("notReadyAddresses", false)] {
            let present = group.endpoints.iter().filter(|one| one.ready == ready && (ready || !one.terminating));
            let addresses: Vec<_> = present.map(Endpoint::in_subset).take(limit).collect();
            limit -= addresses.len();
            if !addresses.is_empty() {
                subset[field] = addresses.into();
            }
        }
        if subset != json!({}) {
            // An unnamed port has no name field here, unlike in slices.
            let mut ports = group.ports.clone();
            for port in ports.iter_mut().filter_map(Value::as_object_mut) {
                port.retain(|field, value| field != "name" || *value != "");
            }
            if !ports.is_empty() {
                subset["ports"] = ports.into();
            }
            subsets.push(subset);
        }
    }
    subsets.into()
}
