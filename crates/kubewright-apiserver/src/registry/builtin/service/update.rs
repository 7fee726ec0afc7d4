//! What an update of a service keeps and removes, other than what the client says.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{has_node_ports, needs_node_ports, node_port, node_ports_of, validate};
use crate::fields::{each, int, list, remove, set, text, within};

fn has_address(spec: &Value) -> bool {
    text(spec, "/type") != "ExternalName"
}

/// Preserves allocated addresses and ports that an update doesn't set, as long as the type of the service needs them
/// (`patchAllocatedValues` and `normalizeClusterIPs` of Kubernetes' registry).
pub(super) fn carry_over(old: &Value, new: &mut Value) {
    let Some(spec) = new.get_mut("spec") else { return };
    if has_address(old) && has_address(spec) {
        if text(spec, "/clusterIP").is_empty() && !text(old, "/clusterIP").is_empty() {
            set(spec, "clusterIP", old["clusterIP"].clone());
        }
        if list(spec, "/clusterIPs").is_empty() && !list(old, "/clusterIPs").is_empty() {
            set(spec, "clusterIPs", old["clusterIPs"].clone());
        }
    }
    // A client that changes the address may know only one of the two fields.
    if text(spec, "/clusterIP") != text(old, "/clusterIP") && list(spec, "/clusterIPs") == list(old, "/clusterIPs") {
        let address = text(spec, "/clusterIP").to_owned();
        if address.is_empty() {
            remove(spec, "clusterIPs");
        } else {
            set(spec, "clusterIPs", json!([address]));
        }
    }
    if needs_node_ports(old) && needs_node_ports(spec) {
        carry_over_node_ports(old, spec);
    }
    if validate::needs_health_check(old)
        && validate::needs_health_check(spec)
        && int(spec, "/healthCheckNodePort") == 0
        && int(old, "/healthCheckNodePort") != 0
    {
        set(spec, "healthCheckNodePort", old["healthCheckNodePort"].clone());
    }
}

/// Preserves the node ports of ports whose names are as before, unless other ports took them.
fn carry_over_node_ports(old: &Value, spec: &mut Value) {
    let given = node_ports_of(spec);
    let before: BTreeMap<_, _> =
        list(old, "/ports").iter().filter_map(|port| Some((text(port, "/name"), node_port(port)?))).collect();
    for port in each(spec, "ports").filter(|port| int(port, "/nodePort") == 0) {
        if let Some(number) = before.get(text(port, "/name")).filter(|number| !given.contains(number)) {
            set(port, "nodePort", *number);
        }
    }
}

/// Removes fields that the new type of a service doesn't have, if the update leaves their values as they were. Clients
/// that change the type rarely remove them (`dropTypeDependentFields` of Kubernetes' registry).
pub(super) fn drop_unused(old: &Value, new: &mut Value) {
    let kind = |service: &Value| text(service, "/spec/type").to_owned();
    let (before, after) = (kind(old), kind(new));
    let given = node_ports_of(&old["spec"]);
    let mut unused = Vec::new();
    if before != "ExternalName" && after == "ExternalName" {
        if ["clusterIP", "clusterIPs"].iter().all(|name| old["spec"].get(*name) == new["spec"].get(*name)) {
            unused.extend(["clusterIP", "clusterIPs"]);
        }
        unused.extend(["ipFamilies", "ipFamilyPolicy"]);
    }
    if before == "LoadBalancer" && after != "LoadBalancer" {
        unused.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if validate::needs_health_check(&old["spec"]) && !validate::needs_health_check(&new["spec"]) {
        unused.push("healthCheckNodePort");
    }
    if validate::is_accessible(&old["spec"]) && !validate::is_accessible(&new["spec"]) {
        unused.push("externalTrafficPolicy");
    }
    let keeps_ports = node_ports_of(&new["spec"]).iter().all(|number| given.contains(number));
    let drops_ports = has_node_ports(&old["spec"]) && !has_node_ports(&new["spec"]) && keeps_ports;
    within(new, "spec", |spec| {
        for name in unused.into_iter().filter(|name| old["spec"].get(*name) == spec.get(*name)).collect::<Vec<_>>() {
            remove(spec, name);
        }
        if drops_ports {
            each(spec, "ports").for_each(|port| drop(remove(port, "nodePort")));
        }
    });
}
