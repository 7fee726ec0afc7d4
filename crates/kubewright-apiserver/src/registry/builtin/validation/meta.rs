//! Labels, selectors and the metadata of templates.

use kubewright_apimachinery::name;
use serde_json::Value;

use super::{
    errors::Errors,
    path::Path,
    value::{entries, field, items, string, strings},
};

/// Checks the key of a label.
pub(in crate::registry::builtin) fn validate_label_name(key: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_text(path, key, &name::label_key(key));
}

/// Checks a field that contains labels.
pub(in crate::registry::builtin) fn validate_labels(object: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    for (key, value) in entries(object, field) {
        validate_label_name(key, path, errors);
        let value = value.as_str().unwrap_or_default();
        errors.invalid_text(path, value, &name::label_value(value));
    }
}

/// Checks the field `labelSelector`, or another one with a selector.
pub(in crate::registry::builtin) fn validate_label_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_labels(selector, "matchLabels", &path.child("matchLabels"), errors);
    let path = path.child("matchExpressions");
    for (index, requirement) in items(selector, "matchExpressions").iter().enumerate() {
        validate_requirement(requirement, &path.index(index), errors);
    }
}

fn validate_requirement(requirement: &Value, path: &Path<'_>, errors: &mut Errors) {
    let operator = string(requirement, "operator");
    let values = path.child("values");
    match operator {
        "In" | "NotIn" if items(requirement, "values").is_empty() => {
            errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !items(requirement, "values").is_empty() => {
            errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    validate_label_name(string(requirement, "key"), &path.child("key"), errors);
    for (index, value) in strings(requirement, "values").enumerate() {
        errors.invalid_text(&values.index(index), value, &name::label_value(value));
    }
}

/// Returns whether a selector has no requirement.
pub(in crate::registry::builtin) fn is_empty_selector(selector: &Value) -> bool {
    entries(selector, "matchLabels").next().is_none() && items(selector, "matchExpressions").is_empty()
}

/// Checks the annotations of metadata that isn't an object's own.
pub(in crate::registry::builtin) fn validate_annotations(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    errors.extend(name::annotations(&path.to_string(), &metadata["annotations"]));
}

/// The fields of `ObjectMeta` in the order of their declaration, except labels and annotations.
const OTHER_METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Checks the metadata of a template for claims, which may only have labels and annotations.
pub(in crate::registry::builtin) fn validate_template_object_meta(
    metadata: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    validate_annotations(metadata, &path.child("annotations"), errors);
    validate_labels(metadata, "labels", &path.child("labels"), errors);
    let is_set = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        _ => true,
    };
    for name in OTHER_METADATA {
        if field(metadata, name).is_some_and(is_set) {
            // As in Kubernetes, where the name is made from that of the field in Go.
            let shown = if *name == "uid" { "uID" } else { *name };
            errors.forbidden(&path.child(shown), "cannot be set");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_checked() {
        let check = |selector: Value, expected: &[&str]| {
            let causes = Errors::collect(|errors| validate_label_selector(&selector, &Path::new("s"), errors));
            let fields: Vec<_> = causes.iter().map(|cause| cause.field.as_str()).collect();
            assert_eq!(fields, expected, "{causes:?}");
        };
        check(json!({"matchLabels": {"a": "b"}}), &[]);
        check(json!({"matchLabels": {"a": "b c"}}), &["s.matchLabels"]);
        check(json!({"matchExpressions": [{"key": "a", "operator": "In"}]}), &["s.matchExpressions[0].values"]);
        check(json!({"matchExpressions": [{"key": "a", "operator": "X"}]}), &["s.matchExpressions[0].operator"]);
        check(
            json!({"matchExpressions": [{"key": "", "operator": "Exists", "values": ["a"]}]}),
            &["s.matchExpressions[0].values", "s.matchExpressions[0].key", "s.matchExpressions[0].key"],
        );
    }

    #[test]
    fn templates_for_claims_have_no_name() {
        let metadata = json!({"name": "a", "labels": {"b": "c"}, "creationTimestamp": null});
        let causes = Errors::collect(|errors| validate_template_object_meta(&metadata, &Path::new("m"), errors));
        assert_eq!(causes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["m.name: Forbidden: cannot be set"]);
    }
}
