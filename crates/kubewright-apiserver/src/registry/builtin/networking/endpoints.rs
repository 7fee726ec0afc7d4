//! Validation of endpoints and endpoint slices.

use std::{collections::BTreeSet, net::IpAddr};

use kubewright_apimachinery::name;
use serde_json::Value;

use crate::registry::builtin::validation::{
    Errors, IMMUTABLE, Path, entries, entry, field, int, ip_warning, items, optional_string, string, strings,
    validate_canonical_ip, validate_endpoint_ip, validate_ip, validate_labels, validate_port_number, validate_text,
};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Returns the warnings about the addresses of endpoints. Those of the controller are well-formed.
pub(super) fn endpoints_warnings(endpoints: &Value) -> Vec<String> {
    const MANAGER: &str = "endpoints.kubernetes.io/managed-by";
    if entry(&endpoints["metadata"], "labels", MANAGER) == Some("endpoint-controller") {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    let path = Path::new("subsets");
    for (index, subset) in items(endpoints, "subsets").iter().enumerate() {
        let path = path.index(index);
        for list in ["addresses", "notReadyAddresses"] {
            let path = path.child(list);
            for (index, address) in items(subset, list).iter().enumerate() {
                warnings.extend(ip_warning(string(address, "ip"), &path.index(index).child("ip")));
            }
        }
    }
    warnings
}

/// Returns the warnings about the type of a new slice, and about the addresses.
pub(super) fn endpoint_slice_warnings(old: Option<&Value>, slice: &Value) -> Vec<String> {
    const MANAGER: &str = "endpointslice.kubernetes.io/managed-by";
    const CONTROLLERS: [&str; 2] = ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];
    let mut warnings = Vec::new();
    if old.is_none() && string(slice, "addressType") == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    if entry(&slice["metadata"], "labels", MANAGER).is_some_and(|manager| CONTROLLERS.contains(&manager)) {
        return warnings;
    }
    let path = Path::new("endpoints");
    for (index, endpoint) in items(slice, "endpoints").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("addresses");
        for (index, address) in strings(endpoint, "addresses").enumerate() {
            warnings.extend(ip_warning(address, &path.index(index)));
        }
    }
    warnings
}

/// Checks endpoints. Subsets that an update doesn't change stay valid.
pub(super) fn validate_endpoints(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    if old.is_some_and(|old| old["subsets"] == new["subsets"]) {
        return;
    }
    let path = Path::new("subsets");
    for (index, subset) in items(new, "subsets").iter().enumerate() {
        let path = path.index(index);
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| items(subset, list).is_empty()) {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in lists {
            let path = path.child(list);
            for (index, address) in items(subset, list).iter().enumerate() {
                validate_address(address, &path.index(index), errors);
            }
        }
        let ports = items(subset, "ports");
        let path = path.child("ports");
        for (index, port) in ports.iter().enumerate() {
            validate_port(port, ports.len() > 1, &path.index(index), errors);
        }
    }
}

fn validate_address(address: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ip = string(address, "ip");
    validate_ip(ip, &path.child("ip"), errors);
    let host = string(address, "hostname");
    if !host.is_empty() {
        validate_text(host, name::dns1123_label, &path.child("hostname"), errors);
    }
    if let Some(node) = optional_string(address, "nodeName") {
        validate_text(node, name::dns1123_subdomain, &path.child("nodeName"), errors);
    }
    validate_endpoint_ip(ip, &path.child("ip"), errors);
}

fn validate_port(port: &Value, needs_name: bool, path: &Path<'_>, errors: &mut Errors) {
    match string(port, "name") {
        "" if needs_name => errors.required(&path.child("name"), ""),
        "" => {}
        name => validate_text(name, name::dns1123_label, &path.child("name"), errors),
    }
    validate_port_number(int(port, "port"), &path.child("port"), errors);
    match string(port, "protocol") {
        "" => errors.required(&path.child("protocol"), ""),
        protocol if PROTOCOLS.contains(&protocol) => {}
        other => errors.not_supported(&path.child("protocol"), other, PROTOCOLS),
    }
    if let Some(protocol) = optional_string(port, "appProtocol") {
        validate_text(protocol, name::label_key, &path.child("appProtocol"), errors);
    }
}

/// Checks an endpoint slice. Endpoints that an update doesn't change stay valid.
pub(super) fn validate_endpoint_slice(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    const KINDS: &[&str] = &["FQDN", "IPv4", "IPv6"];
    let (kind, path) = (string(new, "addressType"), Path::new("addressType"));
    match kind {
        "" => errors.required(&path, ""),
        kind if KINDS.contains(&kind) => {}
        other => errors.not_supported(&path, other, KINDS),
    }
    validate_slice_ports(new, errors);
    if old.is_none_or(|old| old["endpoints"] != new["endpoints"]) {
        validate_slice_endpoints(new, kind, errors);
    }
    if old.is_some_and(|old| string(old, "addressType") != kind) {
        errors.invalid(&path, kind, IMMUTABLE);
    }
}

fn validate_slice_ports(slice: &Value, errors: &mut Errors) {
    const LIMIT: usize = 20_000;
    let (ports, path) = (items(slice, "ports"), Path::new("ports"));
    if ports.len() > LIMIT {
        errors.too_many(&path, ports.len(), LIMIT);
        return;
    }
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = string(port, "name");
        if !name.is_empty() {
            validate_text(name, name::dns1123_label, &path.child("name"), errors);
        }
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        match optional_string(port, "protocol") {
            None => errors.required(&path.child("protocol"), ""),
            Some(protocol) if PROTOCOLS.contains(&protocol) => {}
            Some(other) => errors.not_supported(&path.child("protocol"), other, PROTOCOLS),
        }
        if let Some(protocol) = optional_string(port, "appProtocol") {
            validate_text(protocol, name::label_key, &path.child("appProtocol"), errors);
        }
    }
}

fn validate_slice_endpoints(slice: &Value, kind: &str, errors: &mut Errors) {
    const ENDPOINTS: usize = 1000;
    const ADDRESSES: usize = 100;
    const TOPOLOGY: usize = 16;
    let (endpoints, path) = (items(slice, "endpoints"), Path::new("endpoints"));
    if endpoints.len() > ENDPOINTS {
        errors.too_many(&path, endpoints.len(), ENDPOINTS);
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(index);
        let (number, at) = (items(endpoint, "addresses").len(), path.child("addresses"));
        if number == 0 {
            errors.required(&at, "must contain at least 1 address");
        } else if number > ADDRESSES {
            errors.too_many(&at, number, ADDRESSES);
        }
        for (index, address) in strings(endpoint, "addresses").enumerate() {
            validate_slice_address(address, kind, &at, &at.index(index), errors);
        }
        if let Some(node) = optional_string(endpoint, "nodeName") {
            validate_text(node, name::dns1123_subdomain, &path.child("nodeName"), errors);
        }
        let at = path.child("deprecatedTopology");
        let labels = entries(endpoint, "deprecatedTopology").count();
        if labels > TOPOLOGY {
            errors.too_many(&at, labels, TOPOLOGY);
        }
        validate_labels(endpoint, "deprecatedTopology", &at, errors);
        if let Some(host) = optional_string(endpoint, "hostname") {
            validate_text(host, name::dns1123_label, &path.child("hostname"), errors);
        }
        if let Some(hints) = field(endpoint, "hints") {
            validate_hints(hints, &path.child("hints"), errors);
        }
    }
}

/// Checks an address. `list` is the path of all addresses of the endpoint.
fn validate_slice_address(text: &str, kind: &str, list: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    let is_ipv6 = text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
    let malformed = match kind {
        "IPv4" => errors.any(|errors| validate_ip(text, path, errors)),
        "IPv6" => errors.any(|errors| validate_canonical_ip(text, path, errors)),
        "FQDN" => return validate_domain_name(text, path, errors),
        _ => return,
    };
    if malformed {
        return;
    }
    if is_ipv6 != (kind == "IPv6") {
        errors.invalid(list, text, &format!("must be an {kind} address"));
    }
    validate_endpoint_ip(text, path, errors);
}

fn validate_domain_name(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.is_empty() {
        errors.required(path, "");
        return;
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let wrong = name::dns1123_subdomain(name);
    if !wrong.is_empty() {
        errors.invalid(path, name, &wrong.join(","));
    } else if !name.contains('.') {
        errors.invalid(path, name, "should be a domain with at least two segments separated by dots");
    } else if let Some((label, wrong)) =
        name.split('.').map(|label| (label, name::dns1123_label(label))).find(|(_, wrong)| !wrong.is_empty())
    {
        errors.invalid(path, label, &wrong.join(","));
    }
}

fn validate_hints(hints: &Value, path: &Path<'_>, errors: &mut Errors) {
    const LIMIT: usize = 8;
    type Rule = fn(&str) -> Vec<String>;
    for (list, rule) in [("forZones", name::label_value as Rule), ("forNodes", name::dns1123_subdomain)] {
        let (hints, path) = (items(hints, list), path.child(list));
        if hints.len() > LIMIT {
            errors.too_many(&path, hints.len(), LIMIT);
            return;
        }
        let mut names = BTreeSet::new();
        for (index, hint) in hints.iter().enumerate() {
            let path = path.index(index);
            let name = string(hint, "name");
            if !names.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
            validate_text(name, rule, &path.child("name"), errors);
        }
    }
}
