//! Requests and limits, and the names of resources.

use std::collections::BTreeSet;

use kubewright_apimachinery::name;
use serde_json::Value;

use crate::registry::builtin::validation::{Errors, Path, Quantity, entries, field, items, string, validate_text};

const HUGE_PAGES: &str = "hugepages-";

/// The names without a domain that resources can have.
const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// The resources that are counted in whole numbers.
const INTEGER: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Returns whether a name without a domain is that of a resource.
pub(in crate::registry::builtin) fn is_standard_resource(name: &str) -> bool {
    STANDARD.contains(&name) || is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

/// Returns whether a resource is one of Kubernetes itself.
pub(in crate::registry::builtin) fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended_resource(name: &str) -> bool {
    !is_native_resource(name)
        && !name.starts_with("requests.")
        && name::label_key(&format!("requests.{name}")).is_empty()
}

/// Returns whether a resource is counted in whole numbers.
pub(in crate::registry::builtin) fn is_integer_resource(name: &str) -> bool {
    INTEGER.contains(&name) || is_extended_resource(name)
}

/// Returns whether the request for a resource can be less than its limit.
pub(in crate::registry::builtin) fn is_overcommit_allowed(name: &str) -> bool {
    is_native_resource(name) && !is_huge_pages(name)
}

/// Checks the name of a resource. Returns whether it is valid.
pub(in crate::registry::builtin) fn validate_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    !errors.any(|errors| {
        let wrong = name::label_key(name);
        errors.invalid_text(path, name, &wrong);
        if wrong.is_empty() && !name.contains('/') && !is_standard_resource(name) {
            errors.invalid(path, name, "must be a standard resource type or fully qualified");
        }
    })
}

/// Checks the name of a resource of a container.
pub(in crate::registry::builtin) fn validate_container_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_resource_name(name, path, errors);
    if !name.contains('/') {
        if !["cpu", "memory", "ephemeral-storage"].contains(&name) && !is_huge_pages(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native_resource(name) && !is_extended_resource(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

fn validate_pod_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if validate_resource_name(name, path, errors) && !["cpu", "memory"].contains(&name) && !is_huge_pages(name) {
        errors.not_supported(path, name, &["cpu", HUGE_PAGES, "memory"]);
    }
}

/// Returns an amount as messages show it.
fn shown(amount: &Value) -> String {
    amount.as_str().map_or_else(|| amount.to_string(), String::from)
}

/// Checks the amount of a resource: not negative, and a whole number if the resource is counted.
pub(in crate::registry::builtin) fn validate_quantity(
    name: &str,
    amount: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let quantity = Quantity::read(amount);
    if quantity.is_negative() {
        errors.invalid(path, shown(amount), "must be greater than or equal to 0");
    }
    if is_integer_resource(name) && !quantity.is_whole() {
        errors.invalid(path, shown(amount), "must be an integer");
    }
}

/// Checks `resources` of a container.
pub(super) fn validate_container_resources(
    container: &Value,
    claims: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(resources) = field(container, "resources") {
        validate_requirements(resources, validate_container_resource_name, claims, path, errors);
    }
}

/// Checks `overhead` of a pod, which has the rules of limits.
pub(super) fn validate_overhead(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_limits(&spec["overhead"], path, errors);
}

/// Checks amounts of resources by the rules of a container's limits.
pub(in crate::registry::builtin) fn validate_limits(amounts: &Value, path: &Path<'_>, errors: &mut Errors) {
    let limits = serde_json::json!({"limits": amounts});
    validate_requirements(&limits, validate_container_resource_name, &BTreeSet::new(), path, errors);
}

/// Checks `resources` of a pod.
pub(super) fn validate_pod_resources(spec: &Value, claims: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    let Some(resources) = field(spec, "resources") else { return };
    let path = path.child("resources");
    if string(&spec["os"], "name") == "windows" {
        errors.forbidden(&path, "may not be set for a windows pod");
        return;
    }
    if field(resources, "claims").is_some() {
        errors.forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    validate_requirements(resources, validate_pod_resource_name, claims, &path, errors);
    validate_pod_limits(spec, resources, &path, errors);
}

/// Checks that no container has a greater limit than its pod.
fn validate_pod_limits(spec: &Value, resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("containers");
    for (index, container) in items(spec, "containers").iter().enumerate() {
        let path = path.index(index);
        for (name, limit) in entries(&container["resources"], "limits") {
            let Some(total) = resources["limits"].get(name) else { continue };
            if Quantity::read(limit) > Quantity::read(total) {
                let why = format!("must be less than or equal to pod limits of {}", shown(total));
                let path = path.key(name);
                errors.invalid(&path.child("limits"), shown(limit), &why);
            }
        }
    }
}

type NameRule = fn(&str, &Path<'_>, &mut Errors);

/// Checks limits, requests and claims.
fn validate_requirements(
    resources: &Value,
    name_rule: NameRule,
    claims: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    let (mut has_basic, mut has_huge_pages) = (false, false);
    for (name, amount) in entries(resources, "limits") {
        let path = limits.key(name);
        name_rule(name, &path, errors);
        validate_quantity(name, amount, &path, errors);
        validate_huge_pages(name, amount, &path, errors);
        has_huge_pages |= is_huge_pages(name);
        has_basic |= matches!(name, "cpu" | "memory");
    }
    for (name, amount) in entries(resources, "requests") {
        let path = requests.key(name);
        name_rule(name, &path, errors);
        validate_quantity(name, amount, &path, errors);
        let limit = resources["limits"].get(name);
        validate_request(name, amount, limit, &requests, &limits, errors);
        validate_huge_pages(name, amount, &path, errors);
        has_huge_pages |= is_huge_pages(name);
        has_basic |= matches!(name, "cpu" | "memory");
    }
    if has_huge_pages && !has_basic {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    validate_claims(resources, claims, &path.child("claims"), errors);
}

/// Checks a request against the limit. `requests` and `limits` are the paths of the two maps.
fn validate_request(
    name: &str,
    amount: &Value,
    limit: Option<&Value>,
    requests: &Path<'_>,
    limits: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(limit) = limit else {
        if !is_overcommit_allowed(name) {
            errors.required(limits, "Limit must be set for non overcommitable resources");
        }
        return;
    };
    let (quantity, most) = (Quantity::read(amount), Quantity::read(limit));
    if quantity != most && !is_overcommit_allowed(name) {
        let why = format!("must be equal to {name} limit of {}", shown(limit));
        errors.invalid(requests, shown(amount), &why);
    } else if quantity > most {
        let why = format!("must be less than or equal to {name} limit of {}", shown(limit));
        errors.invalid(requests, shown(amount), &why);
    }
}

fn validate_huge_pages(name: &str, amount: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(size) = name.strip_prefix(HUGE_PAGES) else { return };
    let divisible = Quantity::parse(size).is_some_and(|size| Quantity::read(amount).is_multiple_of(size));
    if !divisible {
        let amount = shown(amount);
        let why = format!("{amount} is not positive integer multiple of {name}");
        errors.invalid(path, amount, &why);
    }
}

/// Checks the claims that a container uses.
fn validate_claims(resources: &Value, of_pod: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    let mut used: BTreeSet<String> = BTreeSet::new();
    for (index, claim) in items(resources, "claims").iter().enumerate() {
        let path = path.index(index);
        let (name, request) = (string(claim, "name"), string(claim, "request"));
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if used.contains(name) {
            errors.duplicate(&path, name);
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                validate_text(request, name::dns1123_label, &path.child("request"), errors);
                key = format!("{name}/{request}");
            }
            let prefix = format!("{name}/");
            if used.contains(&key) {
                errors.duplicate(&path, key.as_str());
            } else if request.is_empty() {
                for _ in used.range(prefix.clone()..).take_while(|other| other.starts_with(&prefix)) {
                    errors.duplicate(&path, name);
                }
            }
            used.insert(key);
        }
        if !of_pod.contains(name) {
            let names: Vec<_> = of_pod.iter().copied().collect();
            let list = if names.is_empty() { " which is empty".into() } else { format!(": {}", names.join(", ")) };
            errors.not_found(&path, name, &format!("must be one of the names in pod.spec.resourceClaims{list}"));
        }
    }
}
