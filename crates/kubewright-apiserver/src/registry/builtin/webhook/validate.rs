//! Validation of webhook configurations.

use std::collections::BTreeSet;

use kubewright_apimachinery::{
    cel::{Expected, PolicyDeclarations},
    name,
};
use serde_json::Value;

use super::client::validate_client_config;
use crate::registry::builtin::validation::{
    Errors, Path, field, items, optional_int, optional_string, string, strings, validate_label_selector, validate_text,
};

/// The versions of admission reviews.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
/// The maximum number of match conditions of a webhook.
const MAX_CONDITIONS: usize = 64;

/// Checks a configuration of validating or mutating webhooks.
pub(super) fn validate_webhooks(configuration: &Value, errors: &mut Errors) {
    let path = Path::new("webhooks");
    let mut names = BTreeSet::new();
    for (index, webhook) in items(configuration, "webhooks").iter().enumerate() {
        let path = path.index(index);
        validate_webhook(webhook, &path, errors);
        validate_review_versions(webhook, &path.child("admissionReviewVersions"), errors);
        let name = string(webhook, "name");
        if !name.is_empty() && !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
    }
}

fn validate_webhook(webhook: &Value, path: &Path<'_>, errors: &mut Errors) {
    const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
    validate_fully_qualified_name(string(webhook, "name"), &path.child("name"), errors);
    let rules = path.child("rules");
    for (index, rule) in items(webhook, "rules").iter().enumerate() {
        validate_rule_with_operations(rule, &rules.index(index), errors);
    }
    validate_enum(webhook, "failurePolicy", &["Fail", "Ignore"], path, errors);
    validate_enum(webhook, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    if optional_string(webhook, "sideEffects").is_none() {
        let why = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
        errors.required(&path.child("sideEffects"), &why);
    }
    validate_enum(webhook, "sideEffects", SIDE_EFFECTS, path, errors);
    if let Some(seconds) = optional_int(webhook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), seconds, why);
    }
    for name in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = field(webhook, name) {
            validate_label_selector(selector, &path.child(name), errors);
        }
    }
    validate_enum(webhook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
    validate_client_config(&webhook["clientConfig"], &path.child("clientConfig"), errors);
    validate_match_conditions(webhook, &PolicyDeclarations::of_webhook(), &path.child("matchConditions"), errors);
}

/// Checks a field that has one of some values.
pub(in crate::registry::builtin) fn validate_enum(
    object: &Value,
    field: &str,
    supported: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(value) = optional_string(object, field).filter(|value| !supported.contains(value)) {
        errors.not_supported(&path.child(field), value, supported);
    }
}

/// Checks a name that is a domain of at least three segments.
fn validate_fully_qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let wrong = name::dns1123_subdomain(name);
    if !wrong.is_empty() {
        errors.invalid(path, name, &wrong.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots");
    }
}

fn validate_review_versions(webhook: &Value, path: &Path<'_>, errors: &mut Errors) {
    let versions = items(webhook, "admissionReviewVersions");
    if versions.is_empty() {
        return errors.required(path, &format!("must specify one of {}", REVIEWS.join(", ")));
    }
    let mut seen = BTreeSet::new();
    for (index, version) in strings(webhook, "admissionReviewVersions").enumerate() {
        if seen.insert(version) {
            validate_text(version, name::dns1035_label, &path.index(index), errors);
        } else {
            errors.invalid(&path.index(index), version, "duplicate version");
        }
    }
    if !REVIEWS.iter().any(|known| seen.contains(known)) {
        let why = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.invalid(path, versions.to_vec(), &why);
    }
}

/// Checks a rule about operations on resources.
pub(in crate::registry::builtin) fn validate_rule_with_operations(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    validate_wildcard(rule, "operations", "operations", path, errors);
    let operations = path.child("operations");
    for (index, operation) in strings(rule, "operations").enumerate() {
        if !OPERATIONS.contains(&operation) {
            errors.not_supported(&operations.index(index), operation, OPERATIONS);
        }
    }
    validate_wildcard(rule, "apiGroups", "API groups", path, errors);
    validate_wildcard(rule, "apiVersions", "API versions", path, errors);
    let versions = path.child("apiVersions");
    for (index, _) in strings(rule, "apiVersions").enumerate().filter(|(_, version)| version.is_empty()) {
        errors.required(&versions.index(index), "");
    }
    validate_resources(rule, &path.child("resources"), errors);
    validate_enum(rule, "scope", &["*", "Cluster", "Namespaced"], path, errors);
}

/// Checks that a list isn't empty, and that it contains nothing else if it contains `*`.
fn validate_wildcard(rule: &Value, field: &str, what: &str, path: &Path<'_>, errors: &mut Errors) {
    let list = items(rule, field);
    if list.is_empty() {
        errors.required(&path.child(field), "");
    } else if list.len() > 1 && list.iter().any(|item| item == "*") {
        let why = format!("if '*' is present, must not specify other {what}");
        errors.invalid(&path.child(field), list.to_vec(), &why);
    }
}

fn validate_resources(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = items(rule, "resources");
    if list.is_empty() {
        errors.required(path, "");
    }
    let (mut with_all_subresources, mut of_all_resources) = (BTreeSet::new(), BTreeSet::new());
    let mut has_plain_resource = false;
    for (index, item) in strings(rule, "resources").enumerate() {
        let path = path.index(index);
        if item.is_empty() {
            errors.required(&path, "");
            continue;
        }
        let Some((resource, subresource)) = item.split_once('/') else {
            has_plain_resource = item != "*";
            continue;
        };
        if with_all_subresources.contains(resource) {
            errors.invalid(&path, item, &format!("if '{resource}/*' is present, must not specify {item}"));
        }
        if of_all_resources.contains(subresource) {
            errors.invalid(&path, item, &format!("if '*/{subresource}' is present, must not specify {item}"));
        }
        if subresource == "*" {
            with_all_subresources.insert(resource);
        }
        if resource == "*" {
            of_all_resources.insert(subresource);
        }
    }
    let contains = |pattern: &str| list.iter().any(|item| item == pattern);
    if list.len() > 1 && contains("*/*") {
        errors.invalid(path, list.to_vec(), "if '*/*' is present, must not specify other resources");
    }
    if contains("*") && has_plain_resource {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, list.to_vec(), why);
    }
}

/// Checks the match conditions of a webhook or policy, which may use the declared variables.
pub(in crate::registry::builtin) fn validate_match_conditions(
    object: &Value,
    declarations: &PolicyDeclarations,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let conditions = items(object, "matchConditions");
    if conditions.len() > MAX_CONDITIONS {
        errors.too_many(path, conditions.len(), MAX_CONDITIONS);
    }
    let mut names = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let (name, expression) = (string(condition, "name"), string(condition, "expression").trim());
        if expression.is_empty() {
            errors.required(&path.child("expression"), "");
        } else if let Err(why) = declarations.check(expression, Expected::Bool) {
            errors.refused(&path.child("expression"), expression, why);
        }
        if name.is_empty() {
            errors.required(&path.child("name"), "");
            continue;
        }
        validate_text(name, name::label_key, &path.child("name"), errors);
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
    }
}
