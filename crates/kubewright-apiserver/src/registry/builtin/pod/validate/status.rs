//! Updates of the status of pods.

use std::{collections::BTreeSet, net::IpAddr};

use kubewright_apimachinery::{cidr::without_leading_zeros, name};
use serde_json::Value;

use super::container_status::{validate_container_details, validate_container_statuses};
use crate::registry::builtin::validation::{
    Errors, IMMUTABLE, Path, Shown, field, int, items, optional_string, string, validate_ip, validate_label_name,
    validate_text,
};

const STATUS: Path<'static> = Path::new("status");
const NEGATIVE: &str = "must be a non-negative integer";

/// Checks a status that replaces another one (`ValidatePodStatusUpdate` of Kubernetes' validation).
pub(in crate::registry::builtin::pod) fn validate_status(old: &Value, new: &Value, errors: &mut Errors) {
    let (before, after) = (&old["status"], &new["status"]);
    validate_conditions(after, &STATUS.child("conditions"), errors);
    validate_nomination(old, after, &STATUS.child("nominatedNodeName"), errors);
    let generation = int(after, "observedGeneration");
    if generation < 0 {
        errors.invalid(&STATUS.child("observedGeneration"), generation, NEGATIVE);
    }
    let class = string(before, "qosClass");
    if !class.is_empty() && class != string(after, "qosClass") {
        errors.invalid(&STATUS.child("qosClass"), string(after, "qosClass"), IMMUTABLE);
    }
    validate_container_statuses(old, new, errors);
    validate_claims(&new["spec"], after, &STATUS.child("resourceClaimStatuses"), errors);
    if let Some(claim) = field(after, "extendedResourceClaimStatus") {
        validate_extended_claim(&new["spec"], claim, &STATUS.child("extendedResourceClaimStatus"), errors);
    }
    validate_addresses(before, after, "podIPs", errors);
    validate_host_addresses(before, after, errors);
    validate_container_details(new, errors);
}

fn validate_conditions(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    const OWN: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
    for (index, condition) in items(status, "conditions").iter().enumerate() {
        let path = path.index(index);
        let generation = int(condition, "observedGeneration");
        if generation < 0 {
            errors.invalid(&path.child("observedGeneration"), generation, NEGATIVE);
        }
        let kind = string(condition, "type");
        if !OWN.contains(&kind) {
            // As in Kubernetes, the name of the field is that of the internal type.
            validate_label_name(kind, &path.child("Type"), errors);
        }
    }
}

fn validate_nomination(old: &Value, status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let node = string(status, "nominatedNodeName");
    if node.is_empty() || node == string(&old["status"], "nominatedNodeName") {
        return;
    }
    validate_text(node, name::dns1123_subdomain, path, errors);
    if !string(&old["spec"], "nodeName").is_empty() {
        errors.forbidden(path, "may not be set on pods that are already bound to a node");
    }
}

fn validate_claims(spec: &Value, status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let known: BTreeSet<_> = items(spec, "resourceClaims").iter().map(|claim| string(claim, "name")).collect();
    let mut seen = BTreeSet::new();
    for (index, claim) in items(status, "resourceClaimStatuses").iter().enumerate() {
        let (path, name) = (path.index(index), string(claim, "name"));
        if !known.contains(name) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&path.child("name"), name, why);
        }
        if !seen.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        if let Some(claim) = optional_string(claim, "resourceClaimName") {
            validate_text(claim, name::dns1123_subdomain, &path.child("resourceClaimName"), errors);
        }
    }
}

/// Checks the claim that stands for the extended resources of a pod: each request belongs to a resource of a container.
fn validate_extended_claim(spec: &Value, claim: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mappings = path.child("requestMappings");
    if items(claim, "requestMappings").is_empty() {
        errors.required(&mappings, "at least one request mapping is required");
    }
    // Of two containers of a name, the last one counts.
    let containers = || items(spec, "initContainers").iter().chain(items(spec, "containers")).rev();
    let mut seen = BTreeSet::new();
    for (index, mapping) in items(claim, "requestMappings").iter().enumerate() {
        let at = mappings.index(index);
        let fields = ["containerName", "resourceName", "requestName"];
        let [container, resource, request] = fields.map(|name| string(mapping, name));
        match containers().find(|one| string(one, "name") == container) {
            None => {
                let why = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.invalid(&at.child("containerName"), container, why);
            }
            Some(container) if container["resources"]["requests"].get(resource).is_none() => {
                let why = "must match the extended resource name of an entry in spec.initContainers.resources.requests \
                           or spec.containers.resources.requests";
                errors.invalid(&at.child("resourceName"), resource, why);
            }
            Some(_) => {}
        }
        // As in Kubernetes, the field of this error isn't that of the mapping.
        validate_text(request, name::dns1123_label, &path.child("requestName"), errors);
        if !seen.insert([container, resource, request]) {
            for name in fields {
                errors.duplicate(&at.child(name), string(mapping, name));
            }
        }
    }
    let claim = string(claim, "resourceClaimName");
    if claim.is_empty() {
        errors.required(&path.child("resourceClaimName"), "");
    } else {
        validate_text(claim, name::dns1123_subdomain, &path.child("resourceClaimName"), errors);
    }
}

fn validate_host_addresses(before: &Value, after: &Value, errors: &mut Errors) {
    if let Some(first) = items(after, "hostIPs").first().map(|first| string(first, "ip"))
        && first != string(after, "hostIP")
    {
        let path = STATUS.child("hostIPs");
        errors.invalid(&path.index(0).child("ip"), first, "must be equal to `hostIP`");
    }
    validate_addresses(before, after, "hostIPs", errors);
}

/// Checks the addresses of a pod or its node: at most one of each family. Addresses that were there may be malformed.
fn validate_addresses(before: &Value, after: &Value, name: &str, errors: &mut Errors) {
    let path = STATUS.child(name);
    let addresses = |status| items(status, name).iter().map(|address| string(address, "ip"));
    let existing: BTreeSet<_> = addresses(before).collect();
    for (index, address) in addresses(after).enumerate().filter(|(_, address)| !existing.contains(address)) {
        validate_ip(address, &path.index(index), errors);
    }
    let number = items(after, name).len();
    if number < 2 {
        return;
    }
    let mut families = BTreeSet::new();
    for (index, address) in addresses(after).enumerate() {
        let Some(parsed) = address.parse::<IpAddr>().ok().or_else(|| without_leading_zeros(address)) else {
            let why = format!("failed to check for dual stack with error:invalid IP[{index}]: {address}");
            errors.internal(&path, &why);
            families.clear();
            break;
        };
        families.insert(parsed.is_ipv6());
    }
    if families.len() < 2 || number > 2 {
        let shown = Shown::list(addresses(after).map(|address| Shown::object([("IP", address.into())])));
        errors.invalid(&path, shown, "may specify no more than one IP for each IP family");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(old: Value, status: Value, expected: &[&str]) {
        let new = json!({"spec": old["spec"], "status": status});
        let causes = Errors::collect(|errors| validate_status(&old, &new, errors));
        assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn conditions_and_nominations_have_valid_names() {
        check(json!({}), json!({"conditions": [{"type": "Ready"}, {"type": "example.com/Ok"}]}), &[]);
        check(
            json!({}),
            json!({"conditions": [{"type": "Ready", "observedGeneration": -1}], "observedGeneration": -1}),
            &[
                "status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer",
                "status.observedGeneration: Invalid value: -1: must be a non-negative integer",
            ],
        );
        let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                         must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
                         is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        let kind = format!("status.conditions[0].Type: Invalid value: \"Foo/Bar\": prefix part {subdomain}");
        check(json!({}), json!({"conditions": [{"type": "Foo/Bar"}]}), &[&kind]);
        let node = format!("status.nominatedNodeName: Invalid value: \"A_B\": {subdomain}");
        check(json!({}), json!({"nominatedNodeName": "A_B"}), &[&node]);
        let bound = json!({"spec": {"nodeName": "n"}});
        let why = "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node";
        check(bound, json!({"nominatedNodeName": "m"}), &[why]);
    }

    #[test]
    fn claims_are_those_of_the_pod() {
        let old = json!({"spec": {"resourceClaims": [{"name": "a"}]}});
        check(old.clone(), json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "p-a"}]}), &[]);
        check(
            old,
            json!({"resourceClaimStatuses": [{"name": "x"}, {"name": "a"}, {"name": "a"}]}),
            &[
                "status.resourceClaimStatuses[0].name: Invalid value: \"x\": must match the name of an entry in \
                 `spec.resourceClaims`",
                "status.resourceClaimStatuses[2].name: Duplicate value: \"a\"",
            ],
        );
    }

    #[test]
    fn extended_resources_are_those_of_containers() {
        let requests = json!({"requests": {"a.b/c": "1"}});
        let old = json!({"spec": {"containers": [{"name": "c", "resources": requests}]}});
        let mapping = |container: &str, resource: &str, request: &str| json!({"containerName": container, "resourceName": resource, "requestName": request});
        let status = |name: &str, mappings: Value| json!({"extendedResourceClaimStatus": {"resourceClaimName": name, "requestMappings": mappings}});
        let at = |what: &str| format!("status.extendedResourceClaimStatus.{what}");
        let good = mapping("c", "a.b/c", "r");
        check(old.clone(), status("p-x", json!([good, mapping("c", "a.b/c", "s")])), &[]);
        check(
            old.clone(),
            status("", json!([])),
            &[
                &at("requestMappings: Required value: at least one request mapping is required"),
                &at("resourceClaimName: Required value"),
            ],
        );
        check(
            old,
            status("p", json!([good, good, mapping("d", "a.b/c", "r"), mapping("c", "cpu", "r")])),
            &[
                &at("requestMappings[1].containerName: Duplicate value: \"c\""),
                &at("requestMappings[1].resourceName: Duplicate value: \"a.b/c\""),
                &at("requestMappings[1].requestName: Duplicate value: \"r\""),
                &at("requestMappings[2].containerName: Invalid value: \"d\": must match the name of an entry in \
                     spec.initContainers.name or spec.containers.name"),
                &at(
                    "requestMappings[3].resourceName: Invalid value: \"cpu\": must match the extended resource name of an \
                     entry in spec.initContainers.resources.requests or spec.containers.resources.requests",
                ),
            ],
        );
    }

    #[test]
    fn there_is_one_address_of_each_family() {
        let wrong = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        check(json!({}), json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "::1"}]}), &[]);
        check(json!({"status": {"podIPs": [{"ip": "x"}]}}), json!({"podIPs": [{"ip": "x"}]}), &[]);
        let single = "may specify no more than one IP for each IP family";
        check(
            json!({}),
            json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "x"}], "hostIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}),
            &[
                &format!("status.podIPs[1]: Invalid value: \"x\": {wrong}"),
                "status.podIPs: Internal error: failed to check for dual stack with error:invalid IP[1]: x",
                &format!("status.podIPs: Invalid value: [{{\"IP\":\"10.0.0.1\"}},{{\"IP\":\"x\"}}]: {single}"),
                "status.hostIPs[0].ip: Invalid value: \"10.0.0.1\": must be equal to `hostIP`",
                &format!("status.hostIPs: Invalid value: [{{\"IP\":\"10.0.0.1\"}},{{\"IP\":\"10.0.0.2\"}}]: {single}"),
            ],
        );
    }
}
