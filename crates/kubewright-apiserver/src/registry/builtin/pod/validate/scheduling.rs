//! The choice of a node: affinity, tolerations, topology spread, scheduling gates.

use std::collections::BTreeSet;

use kubewright_apimachinery::name;
use serde_json::Value;

use crate::registry::builtin::validation::{
    Errors, Path, entries, field, int, items, optional_int, optional_string, string, strings, validate_label_name,
    validate_label_selector, validate_positive, validate_text,
};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks `affinity` of a pod.
pub(super) fn validate_affinity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(affinity) = field(spec, "affinity") else { return };
    if let Some(affinity) = field(affinity, "nodeAffinity") {
        validate_node_affinity(affinity, &path.child("nodeAffinity"), errors);
    }
    for name in ["podAffinity", "podAntiAffinity"] {
        let path = path.child(name);
        if let Some(affinity) = field(affinity, name) {
            validate_pod_affinity(affinity, &path, errors);
        }
    }
}

fn validate_node_affinity(affinity: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(selector) = field(affinity, REQUIRED) {
        validate_node_selector(selector, &path.child(REQUIRED), errors);
    }
    let path = path.child(PREFERRED);
    for (index, term) in items(affinity, PREFERRED).iter().enumerate() {
        let path = path.index(index);
        validate_weight(term, &path, errors);
        validate_node_selector_term(&term["preference"], true, &path.child("preference"), errors);
    }
}

fn validate_weight(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    let weight = int(term, "weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, "must be in the range 1-100");
    }
}

/// Checks a node selector with at least one term.
pub(in crate::registry::builtin) fn validate_node_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("nodeSelectorTerms");
    let terms = items(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&path, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        validate_node_selector_term(term, false, &path.index(index), errors);
    }
}

/// Checks a term. The values of a preference aren't checked, since it has no effect if nothing matches.
fn validate_node_selector_term(term: &Value, is_preference: bool, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("matchExpressions");
    for (index, requirement) in items(term, "matchExpressions").iter().enumerate() {
        validate_node_requirement(requirement, is_preference, &at.index(index), errors);
    }
    let at = path.child("matchFields");
    for (index, requirement) in items(term, "matchFields").iter().enumerate() {
        validate_node_field_requirement(requirement, &at.index(index), errors);
    }
}

fn validate_node_requirement(requirement: &Value, is_preference: bool, path: &Path<'_>, errors: &mut Errors) {
    let number = items(requirement, "values").len();
    let values = path.child("values");
    match string(requirement, "operator") {
        "In" | "NotIn" if number == 0 => {
            errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if number > 0 => {
            errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if number != 1 => {
            errors.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    validate_label_name(string(requirement, "key"), &path.child("key"), errors);
    if !is_preference {
        for (index, value) in strings(requirement, "values").enumerate() {
            validate_text(value, name::label_value, &values.index(index), errors);
        }
    }
}

fn validate_node_field_requirement(requirement: &Value, path: &Path<'_>, errors: &mut Errors) {
    let values = path.child("values");
    match string(requirement, "operator") {
        "In" | "NotIn" if items(requirement, "values").len() != 1 => {
            let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(&values, why);
        }
        "In" | "NotIn" => {}
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    let key = string(requirement, "key");
    if key != "metadata.name" {
        errors.invalid(&path.child("key"), key, "not a valid field selector key");
        return;
    }
    for (index, value) in strings(requirement, "values").enumerate() {
        validate_text(value, name::dns1123_subdomain, &values.index(index), errors);
    }
}

fn validate_pod_affinity(affinity: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child(REQUIRED);
    for (index, term) in items(affinity, REQUIRED).iter().enumerate() {
        validate_pod_affinity_term(term, &at.index(index), errors);
    }
    let at = path.child(PREFERRED);
    for (index, term) in items(affinity, PREFERRED).iter().enumerate() {
        let at = at.index(index);
        validate_weight(term, &at, errors);
        validate_pod_affinity_term(&term["podAffinityTerm"], &at.child("podAffinityTerm"), errors);
    }
}

fn validate_pod_affinity_term(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["labelSelector", "namespaceSelector"] {
        if let Some(selector) = field(term, name) {
            validate_label_selector(selector, &path.child(name), errors);
        }
    }
    for namespace in strings(term, "namespaces") {
        validate_text(namespace, name::dns1123_label, &path.child("namespace"), errors);
    }
    validate_match_label_keys(term, path, errors);
    let key = string(term, "topologyKey");
    if key.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    validate_label_name(key, &path.child("topologyKey"), errors);
}

/// Checks the keys of labels whose values are taken from the pod itself.
fn validate_match_label_keys(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    let selector = field(term, "labelSelector");
    for name in ["matchLabelKeys", "mismatchLabelKeys"] {
        let path = path.child(name);
        if items(term, name).is_empty() {
            continue;
        }
        if selector.is_none() {
            errors.forbidden(&path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in strings(term, name).enumerate() {
            validate_label_name(key, &path.index(index), errors);
        }
    }
    let keys = || strings(term, "matchLabelKeys");
    if let Some(selector) = selector {
        let mut selected: BTreeSet<_> = entries(selector, "matchLabels").map(|(key, _)| key).collect();
        for requirement in items(selector, "matchExpressions") {
            let key = string(requirement, "key");
            if let Some(index) = keys().position(|other| other == key).filter(|_| selected.contains(key)) {
                errors.invalid(&path.index(index), key, "exists in both matchLabelKeys and labelSelector");
            }
            selected.insert(key);
        }
    }
    let mismatched: BTreeSet<_> = strings(term, "mismatchLabelKeys").collect();
    let path = path.child("matchLabelKeys");
    for (index, key) in keys().enumerate().filter(|(_, key)| mismatched.contains(key)) {
        errors.invalid(&path.index(index), key, "exists in both matchLabelKeys and mismatchLabelKeys");
    }
}

/// Checks tolerations of taints.
pub(in crate::registry::builtin) fn validate_tolerations(tolerations: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        validate_toleration(toleration, &path.index(index), errors);
    }
}

fn validate_toleration(toleration: &Value, path: &Path<'_>, errors: &mut Errors) {
    let text = |name| string(toleration, name);
    let (key, operator, value, effect) = (text("key"), text("operator"), text("value"), text("effect"));
    let at = path.child("operator");
    if !key.is_empty() {
        validate_label_name(key, &path.child("key"), errors);
    } else if operator != "Exists" {
        let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.invalid(&at, operator, why);
    }
    if field(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.invalid(&path.child("effect"), effect, why);
    }
    match operator {
        "Equal" | "" => {
            let wrong = name::label_value(value);
            if !wrong.is_empty() {
                errors.invalid(&at, value, &wrong.join(";"));
            }
        }
        "Exists" if !value.is_empty() => {
            errors.invalid(&at, value, "value must be empty when `operator` is 'Exists'");
        }
        "Exists" => {}
        "Lt" | "Gt" => errors.not_supported(&at, operator, &["Equal", "Exists", "Lt", "Gt"]),
        _ => errors.not_supported(&at, operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        validate_taint_effect(effect, &path.child("effect"), errors);
    }
}

/// Checks the effect of a taint.
pub(in crate::registry::builtin) fn validate_taint_effect(effect: &str, path: &Path<'_>, errors: &mut Errors) {
    if !EFFECTS.contains(&effect) {
        errors.not_supported(path, effect, EFFECTS);
    }
}

/// Checks `schedulingGates` of a pod.
pub(super) fn validate_scheduling_gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (index, gate) in items(spec, "schedulingGates").iter().enumerate() {
        let name = string(gate, "name");
        validate_text(name, name::label_key, &path.index(index), errors);
        if !names.insert(name) {
            errors.duplicate(&path.index(index), name);
        }
    }
}

/// Checks `topologySpreadConstraints` of a pod.
pub(super) fn validate_topology_spread_constraints(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
    const POLICIES: &[&str] = &["Honor", "Ignore"];
    let constraints = items(spec, "topologySpreadConstraints");
    let pair = |constraint: &Value| {
        (string(constraint, "topologyKey").to_owned(), string(constraint, "whenUnsatisfiable").to_owned())
    };
    // A constraint is reported if a later one has the same key and action.
    let mut later = BTreeSet::new();
    let mut repeated: Vec<_> = constraints.iter().rev().map(|constraint| !later.insert(pair(constraint))).collect();
    repeated.reverse();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        validate_positive(int(constraint, "maxSkew"), &path.child("maxSkew"), errors);
        let (key, action) = pair(constraint);
        if key.is_empty() {
            errors.required(&path.child("topologyKey"), "can not be empty");
        }
        if !ACTIONS.contains(&&*action) {
            errors.not_supported(&path.child("whenUnsatisfiable"), &*action, ACTIONS);
        }
        if repeated[index] {
            errors.duplicate(&path.child("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {action}}}"));
        }
        if let Some(number) = optional_int(constraint, "minDomains") {
            validate_positive(number, &path.child("minDomains"), errors);
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(&path.child("minDomains"), number, &why);
            }
        }
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = optional_string(constraint, name).filter(|policy| !POLICIES.contains(policy)) {
                errors.not_supported(&path.child(name), policy, POLICIES);
            }
        }
        validate_match_label_keys(constraint, &path, errors);
        if let Some(selector) = field(constraint, "labelSelector") {
            validate_label_selector(selector, &path.child("labelSelector"), errors);
        }
    }
}
