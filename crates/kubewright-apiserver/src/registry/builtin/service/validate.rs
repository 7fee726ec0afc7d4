//! Validation of services.

use std::{collections::BTreeSet, net::IpAddr};

use kubewright_apimachinery::{cidr::without_leading_zeros, name};
use serde_json::Value;

use super::IPV4;
use crate::registry::builtin::validation::{
    Errors, Path, Shown, entries, entry, field, int, items, optional_int, optional_string, string, strings,
    validate_cidr, validate_endpoint_ip, validate_ip, validate_labels, validate_port_number,
    validate_port_number_or_name, validate_text,
};

const SPEC: Path<'static> = Path::new("spec");
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Checks that the addresses of a service can be of its families. The embedded cluster has only IPv4.
///
/// Each step is reported alone, as Kubernetes' allocator does (`initIPFamilyFields` of its registry).
pub(super) fn validate_families(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let (old, spec) = (old.map(|old| &old["spec"]), &new["spec"]);
    if string(spec, "type") == "ExternalName"
        || errors.any(|errors| validate_cluster_ips(old, spec, errors))
        || errors.any(|errors| validate_number_of_families(spec, errors))
    {
        return;
    }
    if is_headless(spec) && entries(spec, "selector").next().is_none() {
        return;
    }
    if string(spec, "ipFamilyPolicy") == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        errors.invalid(&SPEC.child("ipFamilyPolicy"), "RequireDualStack", why);
    }
    let path = SPEC.child("ipFamilies");
    for (index, family) in strings(spec, "ipFamilies").enumerate().filter(|(_, family)| *family != IPV4) {
        errors.invalid(&path.index(index), family, "not configured on this cluster");
    }
}

/// Checks the policy against the numbers of addresses and families, and that each address has a family.
fn validate_number_of_families(spec: &Value, errors: &mut Errors) {
    let policy = string(spec, "ipFamilyPolicy");
    let path = SPEC.child("ipFamilyPolicy");
    if policy == "SingleStack" {
        for (name, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if items(spec, name).len() == 2 {
                let why = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
                errors.invalid(&path, policy, &why);
            }
        }
    }
    let (addresses, path) = (items(spec, "clusterIPs"), SPEC.child("clusterIPs"));
    let of_family = strings(spec, "clusterIPs").enumerate().skip(items(spec, "ipFamilies").len());
    for (index, _) in of_family.filter(|(_, address)| is_ipv6(address)) {
        errors.invalid(&path.index(index), addresses.to_vec(), "IPv6 is not configured on this cluster");
    }
}

/// Checks a service.
pub(super) fn validate_service(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    if let Some(old) = old {
        validate_update(&old["spec"], spec, errors);
    }
    validate_topology_annotations(new, errors);
    validate_kind(spec, errors);
    validate_ports(spec, errors);
    validate_labels(spec, "selector", &SPEC.child("selector"), errors);
    validate_session_affinity(spec, errors);
    validate_cluster_ips(old.map(|old| &old["spec"]), spec, errors);
    validate_external_ips(old, spec, errors);
    validate_choice(spec, "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], errors);
    validate_repeated_ports(spec, errors);
    validate_source_ranges(old, new, errors);
    validate_load_balancer(spec, errors);
    validate_external_traffic_policy(spec, errors);
    validate_internal_traffic_policy(spec, errors);
    const DISTRIBUTIONS: &[&str] = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(value) = optional_string(spec, "trafficDistribution").filter(|value| !DISTRIBUTIONS.contains(value)) {
        errors.not_supported(&SPEC.child("trafficDistribution"), value, DISTRIBUTIONS);
    }
}

fn is_headless(spec: &Value) -> bool {
    items(spec, "clusterIPs").len() == 1 && spec["clusterIPs"][0] == "None"
}

fn validate_choice(spec: &Value, name: &str, allowed: &[&str], errors: &mut Errors) {
    match string(spec, name) {
        "" => errors.required(&SPEC.child(name), ""),
        value if allowed.contains(&value) => {}
        other => errors.not_supported(&SPEC.child(name), other, allowed),
    }
}

fn validate_topology_annotations(service: &Value, errors: &mut Errors) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    const MODE: &str = "service.kubernetes.io/topology-mode";
    let value = |key| entry(&service["metadata"], "annotations", key);
    if let (Some(hints), Some(mode)) = (value(HINTS), value(MODE))
        && hints != mode
    {
        let path = Path::new("metadata.annotations");
        errors.invalid(&path.key(MODE), mode, &format!("must match annotations[{HINTS}] when both are specified"));
    }
}

fn validate_kind(spec: &Value, errors: &mut Errors) {
    let (kind, headless) = (string(spec, "type"), is_headless(spec));
    if items(spec, "ports").is_empty() && !headless && kind != "ExternalName" {
        errors.required(&SPEC.child("ports"), "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let why = format!("may not be set to 'None' for {kind} services");
            errors.invalid(&SPEC.child("clusterIPs").index(0), "None", &why);
        }
        "ExternalName" => {
            for name in ["clusterIPs", "ipFamilies"] {
                if !items(spec, name).is_empty() {
                    errors.forbidden(&SPEC.child(name), "may not be set for ExternalName services");
                }
            }
            if field(spec, "ipFamilyPolicy").is_some() {
                errors.forbidden(&SPEC.child("ipFamilyPolicy"), "may not be set for ExternalName services");
            }
            let name = string(spec, "externalName");
            match name.strip_suffix('.').unwrap_or(name) {
                "" => errors.required(&SPEC.child("externalName"), ""),
                name => validate_text(name, name::dns1123_subdomain, &SPEC.child("externalName"), errors),
            }
        }
        _ => {}
    }
}

fn validate_ports(spec: &Value, errors: &mut Errors) {
    let (ports, path) = (items(spec, "ports"), SPEC.child("ports"));
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = string(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(&path.child("name"), "");
            }
        } else {
            validate_text(name, name::dns1123_label, &path.child("name"), errors);
            if !names.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
        }
        validate_port_number(int(port, "port"), &path.child("port"), errors);
        match string(port, "protocol") {
            "" => errors.required(&path.child("protocol"), ""),
            protocol if PROTOCOLS.contains(&protocol) => {}
            other => errors.not_supported(&path.child("protocol"), other, PROTOCOLS),
        }
        validate_port_number_or_name(&port["targetPort"], &path.child("targetPort"), errors);
        if let Some(protocol) = optional_string(port, "appProtocol") {
            validate_text(protocol, name::label_key, &path.child("appProtocol"), errors);
        }
    }
}

fn validate_session_affinity(spec: &Value, errors: &mut Errors) {
    const LIMIT: i64 = 86_400;
    validate_choice(spec, "sessionAffinity", &["ClientIP", "None"], errors);
    let (config, path) = (field(spec, "sessionAffinityConfig"), SPEC.child("sessionAffinityConfig"));
    match string(spec, "sessionAffinity") {
        "None" if config.is_some() => {
            errors.forbidden(&path, "must not be set when session affinity is None");
        }
        "ClientIP" => {
            const WHY: &str = "when session affinity type is ClientIP";
            let client = path.child("clientIP");
            let at = client.child("timeoutSeconds");
            let Some(config) = config else { return errors.required(&path, WHY) };
            let Some(config) = field(config, "clientIP") else { return errors.required(&client, WHY) };
            let Some(seconds) = optional_int(config, "timeoutSeconds") else { return errors.required(&at, WHY) };
            if !(1..=LIMIT).contains(&seconds) {
                errors.invalid(&at, seconds, &format!("must be greater than 0 and less than {LIMIT}"));
            }
        }
        _ => {}
    }
}

fn is_ipv6(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6())
}

fn validate_cluster_ips(old: Option<&Value>, spec: &Value, errors: &mut Errors) {
    const FAMILIES: &[&str] = &["IPv4", "IPv6"];
    const POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];
    if string(spec, "type") == "ExternalName" {
        return;
    }
    let (addresses, path) = (items(spec, "clusterIPs"), SPEC.child("clusterIPs"));
    let first = string(spec, "clusterIP");
    match (first.is_empty(), addresses.first()) {
        (false, None) => errors.required(&path, ""),
        (false, Some(address)) if address != first => {
            errors.invalid(&path, addresses.to_vec(), "first value must match `clusterIP`");
        }
        (true, Some(_)) => {
            errors.invalid(&path, addresses.to_vec(), "must be empty when `clusterIP` is not specified");
        }
        _ => {}
    }
    let mut seen = BTreeSet::new();
    let families = SPEC.child("ipFamilies");
    for (index, family) in strings(spec, "ipFamilies").enumerate() {
        if !FAMILIES.contains(&family) {
            errors.not_supported(&families.index(index), family, FAMILIES);
        }
        if !seen.insert(family) {
            errors.duplicate(&families.index(index), family);
        }
    }
    if let Some(policy) = optional_string(spec, "ipFamilyPolicy").filter(|policy| !POLICIES.contains(policy)) {
        errors.not_supported(&SPEC.child("ipFamilyPolicy"), policy, POLICIES);
    }
    let existing: BTreeSet<_> = old.into_iter().flat_map(|old| strings(old, "clusterIPs")).collect();
    let mut malformed = false;
    for (index, address) in strings(spec, "clusterIPs").enumerate() {
        if index == 0 && address == "None" {
            if addresses.len() > 1 {
                malformed = true;
                errors.invalid(&path, addresses.to_vec(), "'None' must be the first and only value");
            }
        } else if !existing.contains(address) {
            malformed |= errors.any(|errors| validate_ip(address, &path.index(index), errors));
        }
    }
    if addresses.len() > 2 {
        errors.invalid(&path, addresses.to_vec(), "may only hold up to 2 values");
    }
    if malformed {
        return;
    }
    if addresses.len() > 1 {
        let kinds: BTreeSet<_> = strings(spec, "clusterIPs").map(is_ipv6).collect();
        if kinds.len() < 2 {
            let why = "may specify no more than one IP for each IP family";
            errors.invalid(&path, addresses.to_vec(), why);
        }
    }
    if is_headless(spec) {
        return;
    }
    for (index, (address, family)) in strings(spec, "clusterIPs").zip(strings(spec, "ipFamilies")).enumerate() {
        if FAMILIES.contains(&family) && is_ipv6(address) != (family == "IPv6") {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&path.index(index), address, &why);
        }
    }
}

fn validate_external_ips(old: Option<&Value>, spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("externalIPs");
    let existing: BTreeSet<_> = old.into_iter().flat_map(|old| strings(&old["spec"], "externalIPs")).collect();
    for (index, address) in strings(spec, "externalIPs").enumerate() {
        let path = path.index(index);
        let malformed = !existing.contains(address) && errors.any(|errors| validate_ip(address, &path, errors));
        if malformed {
            continue;
        }
        if address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
            errors.invalid(&path, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
        }
        validate_endpoint_ip(address, &path, errors);
    }
}

fn validate_repeated_ports(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("ports");
    let ports = || items(spec, "ports").iter().enumerate();
    if string(spec, "type") == "ClusterIP" {
        for (index, _) in ports().filter(|(_, port)| int(port, "nodePort") != 0) {
            let path = path.index(index);
            errors.forbidden(&path.child("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut used = BTreeSet::new();
    for (index, port) in ports().filter(|(_, port)| int(port, "nodePort") != 0) {
        let number = int(port, "nodePort");
        if !used.insert((string(port, "protocol"), number)) {
            let path = path.index(index);
            errors.duplicate(&path.child("nodePort"), number);
        }
    }
    let mut used = BTreeSet::new();
    for (index, port) in ports() {
        let (protocol, number) = (string(port, "protocol"), int(port, "port"));
        if !used.insert((protocol, number)) {
            // Kubernetes shows its internal type, without the other fields of the port.
            let shown = Shown::object([
                ("Name", "".into()),
                ("Protocol", protocol.into()),
                ("AppProtocol", Value::Null.into()),
                ("Port", number.into()),
                ("TargetPort", 0.into()),
                ("NodePort", 0.into()),
            ]);
            errors.duplicate(&path.index(index), shown);
        }
    }
}

fn validate_source_ranges(old: Option<&Value>, service: &Value, errors: &mut Errors) {
    const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    const WHY: &str = "may only be used when `type` is 'LoadBalancer'";
    let spec = &service["spec"];
    let balanced = string(spec, "type") == "LoadBalancer";
    if !items(spec, "loadBalancerSourceRanges").is_empty() {
        let path = SPEC.child("LoadBalancerSourceRanges");
        if !balanced {
            errors.forbidden(&path, WHY);
        }
        let ranges = |service| strings(service, "loadBalancerSourceRanges").map(str::trim);
        let existing: BTreeSet<_> = old.into_iter().flat_map(|old| ranges(&old["spec"])).collect();
        for (index, range) in ranges(spec).enumerate().filter(|(_, range)| !existing.contains(range)) {
            validate_cidr(range, &path.index(index), errors);
        }
        return;
    }
    let annotation = |service: &Value| entry(&service["metadata"], "annotations", ANNOTATION).map(str::to_owned);
    let Some(value) = annotation(service) else { return };
    let path = Path::new("metadata.annotations");
    let path = path.key(ANNOTATION);
    if !balanced {
        errors.forbidden(&path, WHY);
    }
    if old.and_then(annotation).as_ref() != Some(&value) && !value.trim().is_empty() {
        value.trim().split(',').for_each(|range| validate_cidr(range.trim(), &path, errors));
    }
}

fn validate_load_balancer(spec: &Value, errors: &mut Errors) {
    const WHY: &str = "may only be used when `type` is 'LoadBalancer'";
    let balanced = string(spec, "type") == "LoadBalancer";
    match (balanced, field(spec, "allocateLoadBalancerNodePorts").is_some()) {
        (false, true) => errors.forbidden(&SPEC.child("allocateLoadBalancerNodePorts"), WHY),
        (true, false) => errors.required(&Path::new("allocateLoadBalancerNodePorts"), ""),
        _ => {}
    }
    validate_load_balancer_class(spec, errors);
}

fn validate_load_balancer_class(spec: &Value, errors: &mut Errors) {
    let Some(class) = optional_string(spec, "loadBalancerClass") else { return };
    let path = SPEC.child("loadBalancerClass");
    if string(spec, "type") == "LoadBalancer" {
        validate_text(class, name::label_key, &path, errors);
    } else {
        errors.forbidden(&path, "may only be used when `type` is 'LoadBalancer'");
    }
}

/// Returns whether a health check has a port of its own.
pub(super) fn needs_health_check(spec: &Value) -> bool {
    string(spec, "type") == "LoadBalancer" && string(spec, "externalTrafficPolicy") == "Local"
}

/// Returns whether clients outside of the cluster can reach a service.
pub(super) fn is_accessible(spec: &Value) -> bool {
    match string(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !items(spec, "externalIPs").is_empty(),
        _ => false,
    }
}

fn validate_external_traffic_policy(spec: &Value, errors: &mut Errors) {
    const POLICIES: &[&str] = &["Cluster", "Local"];
    let accessible = is_accessible(spec);
    let (policy, path) = (string(spec, "externalTrafficPolicy"), SPEC.child("externalTrafficPolicy"));
    match (accessible, policy) {
        (false, "") => {}
        (false, _) => errors.invalid(&path, policy, "may only be set for externally-accessible services"),
        (true, "") => errors.required(&path, ""),
        (true, policy) if POLICIES.contains(&policy) => {}
        (true, _) => errors.not_supported(&path, policy, POLICIES),
    }
    let (port, path) = (int(spec, "healthCheckNodePort"), SPEC.child("healthCheckNodePort"));
    match (needs_health_check(spec), port) {
        (false, 0) => {}
        (false, port) => {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&path, port, why);
        }
        (true, 0) => errors.required(&path, ""),
        (true, port) => validate_port_number(port, &path, errors),
    }
}

fn validate_internal_traffic_policy(spec: &Value, errors: &mut Errors) {
    const POLICIES: &[&str] = &["Cluster", "Local"];
    let path = SPEC.child("internalTrafficPolicy");
    match optional_string(spec, "internalTrafficPolicy") {
        None if matches!(string(spec, "type"), "NodePort" | "LoadBalancer" | "ClusterIP") => {
            errors.required(&path, "");
        }
        Some(policy) if !POLICIES.contains(&policy) => errors.not_supported(&path, policy, POLICIES),
        _ => {}
    }
}

/// Checks the status, which contains the addresses of the load balancer.
pub(super) fn validate_status(old: &Value, new: &Value, errors: &mut Errors) {
    const MODES: &[&str] = &["Proxy", "VIP"];
    fn ingress(service: &Value) -> &[Value] {
        items(&service["status"]["loadBalancer"], "ingress")
    }
    let path = Path::new("status.loadBalancer.ingress");
    if string(&new["spec"], "type") != "LoadBalancer" && !ingress(new).is_empty() {
        errors.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    let existing: BTreeSet<_> = ingress(old).iter().map(|one| string(one, "ip")).collect();
    for (index, one) in ingress(new).iter().enumerate() {
        let path = path.index(index);
        let (address, host) = (string(one, "ip"), string(one, "hostname"));
        if !address.is_empty() && !existing.contains(address) {
            validate_ip(address, &path.child("ip"), errors);
        }
        match (optional_string(one, "ipMode"), address.is_empty()) {
            (None, false) => errors.required(&path.child("ipMode"), "must be specified when `ip` is set"),
            (Some(_), true) => errors.forbidden(&path.child("ipMode"), "may not be specified when `ip` is not set"),
            (Some(mode), false) if !MODES.contains(&mode) => errors.not_supported(&path.child("ipMode"), mode, MODES),
            _ => {}
        }
        if !host.is_empty() {
            validate_text(host, name::dns1123_subdomain, &path.child("hostname"), errors);
            if host.parse::<IpAddr>().is_ok() || without_leading_zeros(host).is_some() {
                errors.invalid(&path.child("hostname"), host, "must be a DNS name, not an IP address");
            }
        }
    }
}

/// Checks what an update must not change.
fn validate_update(old: &Value, new: &Value, errors: &mut Errors) {
    let has_addresses = |spec: &Value| string(spec, "type") != "ExternalName";
    if has_addresses(old) && has_addresses(new) && !(is_headless(old) && is_headless(new)) {
        validate_addresses_update(old, new, errors);
        if !is_headless(old) && !is_headless(new) {
            validate_families_update(old, new, errors);
        }
    }
    let balanced = |spec: &Value| string(spec, "type") == "LoadBalancer";
    if balanced(old) && balanced(new) && field(old, "loadBalancerClass") != field(new, "loadBalancerClass") {
        let class = new["loadBalancerClass"].clone();
        errors.invalid(&SPEC.child("loadBalancerClass"), class, "may not change once set");
    }
    validate_load_balancer_class(new, errors);
    // An older version of the server allocated no such port.
    let port = int(old, "healthCheckNodePort");
    if needs_health_check(old) && needs_health_check(new) && port != 0 && port != int(new, "healthCheckNodePort") {
        errors.forbidden(&SPEC.child("healthCheckNodePort"), "field is immutable");
    }
}

fn validate_addresses_update(old: &Value, new: &Value, errors: &mut Errors) {
    const ONCE: &str = "may not change once set";
    let (before, after, path) = (items(old, "clusterIPs"), items(new, "clusterIPs"), SPEC.child("clusterIPs"));
    let shown = || new.get("clusterIPs").cloned().unwrap_or_default();
    if before.len() == after.len() {
        for index in (0..before.len()).filter(|index| before[*index] != after[*index]) {
            errors.invalid(&path.index(index), shown(), ONCE);
        }
        return;
    }
    if after.is_empty() {
        errors.invalid(&path.index(0), shown(), "primary clusterIP can not be unset");
    }
    if let (Some(one), Some(other)) = (before.first(), after.first())
        && one != other
    {
        errors.invalid(&path.index(0), shown(), ONCE);
    }
    if before.len() > after.len() && after.len() == 1 && string(new, "ipFamilyPolicy") != "SingleStack" {
        let why = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        errors.invalid(&SPEC.child("ipFamilyPolicy"), new["ipFamilyPolicy"].clone(), why);
    }
}

fn validate_families_update(old: &Value, new: &Value, errors: &mut Errors) {
    const ONCE: &str = "may not change once set";
    let (before, after, path) = (items(old, "ipFamilies"), items(new, "ipFamilies"), SPEC.child("ipFamilies"));
    let shown = |name| new.get(name).cloned().unwrap_or_default();
    if before.len() == after.len() {
        for _ in (0..before.len()).filter(|index| before[*index] != after[*index]) {
            errors.invalid(&path.index(0), shown("ipFamilies"), ONCE);
        }
        return;
    }
    if before.len() > after.len() && items(new, "clusterIPs").is_empty() {
        errors.invalid(&path.index(0), shown("ipFamilies"), "primary ipFamily can not be unset");
    }
    if let (Some(one), Some(other)) = (before.first(), after.first())
        && one != other
    {
        errors.invalid(&path.index(0), shown("clusterIPs"), ONCE);
    }
    if before.len() > after.len() && after.len() == 1 && string(new, "ipFamilyPolicy") != "SingleStack" {
        let why = "must be set to 'SingleStack' when releasing the secondary ipFamily";
        errors.invalid(&SPEC.child("ipFamilyPolicy"), new["ipFamilyPolicy"].clone(), why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(old: Option<Value>, change: &[(&str, Value)], expected: &[&str]) {
        let mut spec = json!({
            "type": "ClusterIP", "clusterIP": "127.96.0.5", "clusterIPs": ["127.96.0.5"], "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        });
        for (name, value) in change {
            spec[name] = value.clone();
        }
        let old = old.map(|old| json!({"spec": old}));
        let causes = Errors::collect(|errors| validate_service(old.as_ref(), &json!({"spec": spec}), errors));
        assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn invalid_services_are_refused_as_in_kubernetes() {
        check(None, &[], &[]);
        check(None, &[("ports", json!([]))], &["spec.ports: Required value"]);
        check(None, &[("ports", json!([])), ("clusterIP", json!("None")), ("clusterIPs", json!(["None"]))], &[]);
        check(
            None,
            &[("ports", json!([{"port": 0, "protocol": "TCP", "targetPort": 1}]))],
            &["spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"],
        );
        check(
            None,
            &[("sessionAffinity", json!("ClientIP"))],
            &["spec.sessionAffinityConfig: Required value: when session affinity type is ClientIP"],
        );
        check(
            None,
            &[("externalTrafficPolicy", json!("Local"))],
            &[
                "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
            ],
        );
        let kind = [("type", json!("ExternalName")), ("clusterIP", json!("")), ("clusterIPs", json!([]))];
        check(None, &kind, &["spec.externalName: Required value"]);
    }

    #[test]
    fn only_load_balancers_have_addresses_in_their_status() {
        let check = |kind: &str, ingress: Value, expected: &[&str]| {
            let service = json!({"spec": {"type": kind}, "status": {"loadBalancer": {"ingress": [ingress]}}});
            let causes = Errors::collect(|errors| validate_status(&json!({}), &service, errors));
            assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        };
        let why = "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'";
        check("ClusterIP", json!({"ip": "10.0.0.1", "ipMode": "VIP"}), &[why]);
        check("LoadBalancer", json!({"ip": "10.0.0.1", "ipMode": "VIP", "hostname": "a.example.com"}), &[]);
        check(
            "LoadBalancer",
            json!({"ipMode": "VIP", "hostname": "10.0.0.1"}),
            &[
                "status.loadBalancer.ingress[0].ipMode: Forbidden: may not be specified when `ip` is not set",
                "status.loadBalancer.ingress[0].hostname: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address",
            ],
        );
    }

    #[test]
    fn an_address_is_kept_on_update() {
        let old = json!({"type": "ClusterIP", "clusterIPs": ["127.96.0.6"]});
        let why = "spec.clusterIPs[0]: Invalid value: [\"127.96.0.5\"]: may not change once set";
        check(Some(old), &[], &[why]);
    }
}
