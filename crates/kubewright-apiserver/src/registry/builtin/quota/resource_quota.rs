//! Validation of resource quotas.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::registry::builtin::{
    pod::{is_standard_resource, validate_quantity, validate_resource_name},
    validation::{Errors, IMMUTABLE, Path, Shown, entries, field, items, string, strings},
};

const SPEC: Path<'static> = Path::new("spec");
const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

/// Checks a resource quota.
pub(super) fn validate_resource_quota(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let spec = &new["spec"];
    validate_amounts(spec, "hard", &SPEC, errors);
    validate_scopes(spec, errors);
    if let Some(selector) = field(spec, "scopeSelector") {
        validate_scope_selector(spec, selector, errors);
    }
    let scopes = |spec| strings(spec, "scopes").collect::<BTreeSet<_>>();
    if old.is_some_and(|old| scopes(&old["spec"]) != scopes(spec)) {
        errors.invalid(&SPEC.child("scopes"), shown_scopes(spec), IMMUTABLE);
    }
}

/// Checks the status of a resource quota.
pub(super) fn validate_resource_quota_status(quota: &Value, errors: &mut Errors) {
    for field in ["hard", "used"] {
        validate_amounts(&quota["status"], field, &Path::new("status"), errors);
    }
}

/// Checks a field with amounts of resources.
fn validate_amounts(parent: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child(field);
    for (name, amount) in entries(parent, field) {
        let path = path.key(name);
        validate_resource_name(name, &path, errors);
        if !name.contains('/') && !is_quota_resource(name) {
            errors.invalid(&path, name, "must be a standard resource for quota");
        }
        validate_quantity(name, amount, &path, errors);
    }
}

/// Returns whether a name without a domain is that of a resource which quotas limit.
fn is_quota_resource(name: &str) -> bool {
    is_standard_resource(name) && name != "storage"
}

fn shown_scopes(spec: &Value) -> Shown {
    Shown::nullable(spec.get("scopes"))
}

/// Returns whether a scope selects what a resource counts.
fn fits(scope: &str, resource: &str) -> bool {
    const COMPUTE: &[&str] = &["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            resource == "pods" || COMPUTE.contains(&resource)
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

/// Returns the resources that a scope doesn't select.
fn unfit<'a>(spec: &'a Value, scope: &'a str) -> impl Iterator<Item = &'a str> {
    let names = entries(spec, "hard").map(|(name, _)| name);
    names.filter(move |name| is_quota_resource(name) && !fits(scope, name))
}

/// Checks that scopes don't exclude each other.
fn validate_pairs(spec: &Value, scopes: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid(path, shown_scopes(spec), "conflicting scopes");
        }
    }
}

fn validate_scopes(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("scopes");
    for scope in strings(spec, "scopes") {
        if !SCOPES.contains(&scope) {
            errors.invalid(&path, shown_scopes(spec), "unsupported scope");
        }
        for _ in unfit(spec, scope) {
            errors.invalid(&path, shown_scopes(spec), "unsupported scope applied to resource");
        }
    }
    validate_pairs(spec, &strings(spec, "scopes").collect(), &path, errors);
}

fn validate_scope_selector(spec: &Value, selector: &Value, errors: &mut Errors) {
    let path = SPEC.child("scopeSelector");
    let path = path.child("matchExpressions");
    let requirements = items(selector, "matchExpressions");
    for requirement in requirements {
        let (scope, operator) = (string(requirement, "scopeName"), string(requirement, "operator"));
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in unfit(spec, scope) {
            errors.invalid(&path, shown_selector(selector), "unsupported scope applied to resource");
        }
        if SCOPES.contains(&scope) && !scope.ends_with("Class") && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                       ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort \
                       or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(&path.child("operator"), operator, why);
        }
        let values = items(requirement, "values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(&path.child("values"), why);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(&path.child("values"), values.to_vec(), why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
        }
    }
    let scopes = requirements.iter().map(|requirement| string(requirement, "scopeName")).collect();
    validate_pairs(spec, &scopes, &path, errors);
}

/// Shows a scope selector in the form of Kubernetes' internal type.
fn shown_selector(selector: &Value) -> Shown {
    let requirements = items(selector, "matchExpressions").iter().map(|requirement| {
        Shown::object([
            ("ScopeName", string(requirement, "scopeName").into()),
            ("Operator", string(requirement, "operator").into()),
            ("Values", Shown::nullable(requirement.get("values"))),
        ])
    });
    Shown::object([("MatchExpressions", Shown::list(requirements))])
}
