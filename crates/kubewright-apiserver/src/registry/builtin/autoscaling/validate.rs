//! Validation of autoscalers.

use kubewright_apimachinery::name;
use serde_json::Value;

use crate::registry::builtin::{
    pod::validate_container_resource_name,
    validation::{
        Errors, Path, Quantity, field, int, items, optional_int, optional_string, string, validate_nonnegative,
        validate_required_name, validate_text,
    },
};

/// The greatest period of a policy, in seconds.
const MAX_PERIOD: i64 = 1800;
/// The greatest stabilization window, in seconds.
const MAX_WINDOW: i64 = 3600;

/// The types of metrics, in the order in which their sources are checked.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// Checks an autoscaler.
pub(super) fn validate_autoscaler(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let (spec, path) = (&new["spec"], &Path::new("spec"));
    let old_minimum = old.and_then(|old| optional_int(&old["spec"], "minReplicas"));
    let (minimum, maximum) = (optional_int(spec, "minReplicas"), int(spec, "maxReplicas"));
    let lowest = i64::from(old_minimum != Some(0));
    if let Some(minimum) = minimum.filter(|minimum| *minimum < lowest) {
        errors.invalid(&path.child("minReplicas"), minimum, &format!("must be greater than or equal to {lowest}"));
    }
    let at = path.child("maxReplicas");
    if maximum == 0 {
        errors.required(&at, "must be set and greater than 0");
    } else if maximum < 0 {
        errors.invalid(&at, maximum, "must be greater than or equal to 1");
    }
    if minimum.is_some_and(|minimum| maximum < minimum) {
        errors.invalid(&at, maximum, "must be greater than or equal to `minReplicas`");
    }
    let target = &spec["scaleTargetRef"];
    let is_same = |old: &Value| {
        let old = &old["spec"]["scaleTargetRef"];
        ["apiVersion", "kind"].iter().all(|name| string(old, name) == string(target, name))
    };
    let group = match old {
        Some(old) if is_same(old) => Group::Any,
        _ if string(target, "kind") == "ReplicationController" => Group::Optional,
        _ => Group::Required,
    };
    validate_reference(target, group, &path.child("scaleTargetRef"), errors);
    validate_metrics(old, spec, minimum, &path.child("metrics"), errors);
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = field(&spec["behavior"], direction) {
            validate_scaling_rules(rules, &path.child("behavior").child(direction), errors);
        }
    }
}

/// Checks the status of an autoscaler.
pub(super) fn validate_status(new: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    for name in ["currentReplicas", "desiredReplicas"] {
        validate_nonnegative(int(&new["status"], name), &path.child(name), errors);
    }
}

/// What a reference to an object needs to say about its API group.
#[derive(Clone, Copy, PartialEq)]
enum Group {
    Required,
    Optional,
    /// An old object has the same, so anything is valid.
    Any,
}

/// Returns what is wrong with the `apiVersion` of a reference.
fn wrong_version(version: &str, group: Group) -> Option<String> {
    match version.matches('/').count() {
        _ if group == Group::Any => None,
        0 | 1 if version == "/" || !version.contains('/') || version.starts_with('/') => {
            (group == Group::Required).then(|| "apiVersion must specify API group".to_owned())
        }
        0 | 1 => None,
        _ => Some(format!("unexpected GroupVersion string: {version}")),
    }
}

fn validate_reference(reference: &Value, group: Group, path: &Path<'_>, errors: &mut Errors) {
    for field in ["kind", "name"] {
        validate_required_name(string(reference, field), name::path_segment, &path.child(field), errors);
    }
    let version = string(reference, "apiVersion");
    if let Some(why) = wrong_version(version, group) {
        errors.invalid(&path.child("apiVersion"), version, &why);
    }
}

fn validate_metrics(old: Option<&Value>, spec: &Value, minimum: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    let metrics = items(spec, "metrics");
    let was_wrong = |metric: &Value| {
        let version = string(&metric["object"]["describedObject"], "apiVersion");
        string(metric, "type") == "Object" && wrong_version(version, Group::Optional).is_some()
    };
    let any = old.is_some_and(|old| items(&old["spec"], "metrics").iter().any(was_wrong));
    let group = if any { Group::Any } else { Group::Optional };
    for (index, metric) in metrics.iter().enumerate() {
        validate_metric(metric, group, &path.index(index), errors);
    }
    let counts_without_pods = |metric: &Value| matches!(string(metric, "type"), "Object" | "External");
    if minimum == Some(0) && !metrics.iter().any(counts_without_pods) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(path, why);
    }
}

fn validate_metric(metric: &Value, group: Group, path: &Path<'_>, errors: &mut Errors) {
    const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];
    let (kind, at) = (string(metric, "type"), path.child("type"));
    if kind.is_empty() {
        errors.required(&at, "must specify a metric source type");
    }
    if !TYPES.contains(&kind) {
        errors.not_supported(&at, kind, TYPES);
    }
    let present: Vec<_> = SOURCES.iter().filter(|(_, source)| field(metric, source).is_some()).collect();
    // As in Kubernetes, only the first source is checked.
    if let Some((_, source)) = present.first() {
        validate_source(source, &metric[*source], group, &path.child(source), errors);
    }
    let expected = SOURCES.iter().find(|(known, _)| *known == kind).map(|(_, source)| *source);
    match expected {
        Some(source) if field(metric, source).is_none() => {
            errors.required(&path.child(source), "must populate information for the given metric source");
        }
        Some(_) => {}
        None => errors.not_supported(&at, kind, TYPES),
    }
    if present.len() != 1 {
        for (_, source) in present.iter().filter(|(_, source)| Some(*source) != expected) {
            errors.forbidden(&path.child(source), "must populate the given metric source only");
        }
    }
}

fn validate_source(source: &str, of: &Value, group: Group, path: &Path<'_>, errors: &mut Errors) {
    let (target, at) = (&of["target"], path.child("target"));
    let has = |name: &str| field(target, name).is_some();
    match source {
        "resource" | "containerResource" => {
            let (name, at_name) = (string(of, "name"), path.child("name"));
            if name.is_empty() {
                errors.required(&at_name, "must specify a resource name");
            } else if source == "containerResource" {
                validate_container_resource_name(name, &at_name, errors);
            }
            if source == "containerResource" {
                let (container, at) = (string(of, "container"), path.child("container"));
                if container.is_empty() {
                    errors.required(&at, "must specify a container");
                } else {
                    validate_text(container, name::dns1123_label, &at, errors);
                }
            }
        }
        _ => {
            if source == "object" {
                validate_reference(&of["describedObject"], group, &path.child("describedObject"), errors);
            }
            let (name, at) = (string(&of["metric"], "name"), path.child("metric"));
            let at = at.child("name");
            if name.is_empty() {
                errors.required(&at, "must specify a metric name");
            } else {
                validate_text(name, name::path_segment, &at, errors);
            }
        }
    }
    validate_target(target, &at, errors);
    let (value, average, utilization) = (has("value"), has("averageValue"), has("averageUtilization"));
    let at_average = at.child("averageValue");
    match source {
        "object" if !value && !average => {
            errors.required(&at_average, "must set either a target value or averageValue")
        }
        "external" if !value && !average => {
            errors.required(&at_average, "must set either a target value for metric or a per-pod target");
        }
        "external" if value && average => {
            let why = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&at.child("value"), why);
        }
        "pods" if !average => errors.required(&at_average, "must specify a positive target averageValue"),
        "resource" | "containerResource" if !average && !utilization => {
            let why = "must set either a target raw value or a target utilization";
            errors.required(&at.child("averageUtilization"), why);
        }
        "resource" | "containerResource" if average && utilization => {
            errors.forbidden(&at_average, "may not set both a target raw value and a target utilization");
        }
        _ => {}
    }
}

fn validate_target(target: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (kind, at) = (string(target, "type"), path.child("type"));
    if kind.is_empty() {
        errors.required(&at, "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        errors.invalid(&at, kind, "must be either Utilization, Value, or AverageValue");
    }
    for name in ["value", "averageValue"] {
        if let Some(amount) = field(target, name).filter(|amount| Quantity::read(amount) <= Quantity::default()) {
            errors.invalid(&path.child(name), amount.clone(), "must be positive");
        }
    }
    if let Some(percent) = optional_int(target, "averageUtilization").filter(|percent| *percent < 1) {
        errors.invalid(&path.child("averageUtilization"), percent, "must be greater than 0");
    }
}

fn validate_scaling_rules(rules: &Value, path: &Path<'_>, errors: &mut Errors) {
    const SELECT: &[&str] = &["Disabled", "Max", "Min"];
    let at = path.child("stabilizationWindowSeconds");
    match optional_int(rules, "stabilizationWindowSeconds") {
        Some(window) if window < 0 => errors.invalid(&at, window, "must be greater than or equal to zero"),
        Some(window) if window > MAX_WINDOW => {
            errors.invalid(&at, window, &format!("must be less than or equal to {MAX_WINDOW}"));
        }
        _ => {}
    }
    if let Some(policy) = optional_string(rules, "selectPolicy").filter(|policy| !SELECT.contains(policy)) {
        errors.not_supported(&path.child("selectPolicy"), policy, SELECT);
    }
    let (policies, at) = (items(rules, "policies"), path.child("policies"));
    if policies.is_empty() {
        errors.required(&at, "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        validate_policy(policy, &at.index(index), errors);
    }
    if let Some(tolerance) = field(rules, "tolerance").filter(|tolerance| Quantity::read(tolerance).is_negative()) {
        errors.invalid(&path.child("tolerance"), tolerance.clone(), "must be greater than or equal to 0");
    }
}

fn validate_policy(policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    const TYPES: &[&str] = &["Percent", "Pods"];
    let kind = string(policy, "type");
    if !TYPES.contains(&kind) {
        errors.not_supported(&path.child("type"), kind, TYPES);
    }
    for name in ["value", "periodSeconds"] {
        let number = int(policy, name);
        if number <= 0 {
            errors.invalid(&path.child(name), number, "must be greater than zero");
        }
        if name == "periodSeconds" && number > MAX_PERIOD {
            errors.invalid(&path.child(name), number, &format!("must be less than or equal to {MAX_PERIOD}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn autoscaler(spec: Value) -> Value {
        let mut object = json!({"spec": {
            "maxReplicas": 3, "minReplicas": 1, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "K", "name": "n"},
        }});
        for (name, value) in spec.as_object().unwrap() {
            object["spec"][name] = value.clone();
        }
        object
    }

    #[track_caller]
    fn check(spec: Value, expect: &[&str]) {
        let found = Errors::collect(|errors| validate_autoscaler(None, &autoscaler(spec), errors));
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn numbers_of_replicas_and_the_target_are_checked() {
        check(json!({}), &[]);
        check(
            json!({"maxReplicas": 0}),
            &[
                "spec.maxReplicas: Required value: must be set and greater than 0",
                "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
            ],
        );
        check(
            json!({"scaleTargetRef": {"apiVersion": "v1", "kind": "K", "name": "n"}}),
            &["spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group"],
        );
        check(json!({"scaleTargetRef": {"apiVersion": "v1", "kind": "ReplicationController", "name": "n"}}), &[]);
    }

    #[test]
    fn a_metric_has_the_source_of_its_type() {
        let target = json!({"type": "AverageValue", "averageValue": "0"});
        check(
            json!({"metrics": [{"type": "Pods", "resource": {"name": "cpu", "target": target}}]}),
            &[
                "spec.metrics[0].resource.target.averageValue: Invalid value: \"0\": must be positive",
                "spec.metrics[0].pods: Required value: must populate information for the given metric source",
            ],
        );
    }

    #[test]
    fn rules_are_checked() {
        let policy = json!({"type": "Pods", "value": 0, "periodSeconds": 1801});
        check(
            json!({"behavior": {"scaleUp": {"selectPolicy": "X", "policies": [policy]}}}),
            &[
                "spec.behavior.scaleUp.selectPolicy: Unsupported value: \"X\": supported values: \"Disabled\", \"Max\", \"Min\"",
                "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
                "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
            ],
        );
    }
}
