//! Validation of `metadata`, for all kinds.

use kubewright_apimachinery::{
    name,
    status::{Cause, Status},
};
use serde_json::{Value, json};

use crate::{meta, registry::Resource, schema_rules};

/// Checks the types of the fields of `ObjectMeta`, regardless of the kind's schema.
pub(crate) fn check_types(resource: &Resource, object: &Value) -> Result<(), Status> {
    const TEXTS: [&str; 6] = ["name", "generateName", "namespace", "uid", "resourceVersion", "selfLink"];
    let wrong = |field: &str, expected: &str, value: &Value| {
        let sent = schema_rules::json_type(value);
        let why =
            format!("json: cannot unmarshal {sent} into Go struct field ObjectMeta.metadata{field} of type {expected}");
        schema_rules::unreadable(resource, &why)
    };
    let metadata = match object.get("metadata") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => return Err(wrong("", "v1.ObjectMeta", other)),
    };
    let strings = |value: &Value| match value {
        Value::Object(fields) => fields.values().all(|value| value.is_string() || value.is_null()),
        Value::Array(items) => items.iter().all(Value::is_string),
        _ => false,
    };
    for (field, value) in metadata.iter().filter(|(_, value)| !value.is_null()) {
        let (fits, expected) = match field.as_str() {
            name if TEXTS.contains(&name) => (value.is_string(), "string"),
            "labels" | "annotations" => (value.is_object() && strings(value), "map[string]string"),
            "finalizers" => (value.is_array() && strings(value), "[]string"),
            "ownerReferences" | "managedFields" => {
                (value.as_array().is_some_and(|items| items.iter().all(Value::is_object)), "[]object")
            }
            "generation" | "deletionGracePeriodSeconds" => (value.is_i64(), "int64"),
            "creationTimestamp" | "deletionTimestamp" => (meta::parse_time(value).is_some(), "Time"),
            _ => (true, ""),
        };
        if !fits {
            return Err(wrong(&format!(".{field}"), expected, value));
        }
    }
    Ok(())
}

/// Removes empty fields, which are not stored in `ObjectMeta`. An empty list of managed fields is kept, since it resets
/// them.
pub(crate) fn drop_empty(object: &mut Value) {
    meta::edit(object, |metadata| {
        metadata.retain(|field, value| match value {
            _ if field == "managedFields" => true,
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            Value::Bool(_) | Value::Number(_) => true,
        });
    });
}

/// Checks the name by the rule of the kind.
pub(crate) fn check_name(resource: &Resource, object: &Value) -> Vec<Cause> {
    let name = meta::text(object, "name");
    let wrong = resource.strategy.name_rule()(name);
    wrong.iter().map(|why| Cause::invalid("metadata.name", &json!(name), why)).collect()
}

/// Checks the syntax of labels, annotations, finalizers and owner references.
pub(crate) fn check_syntax(object: &Value) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let mut causes = Vec::new();
    causes.extend(name::labels("metadata.labels", &metadata["labels"]));
    causes.extend(name::annotations("metadata.annotations", &metadata["annotations"]));
    for finalizer in meta::finalizers(object) {
        let wrong = name::label_key(finalizer);
        causes.extend(wrong.iter().map(|why| Cause::invalid("metadata.finalizers", &json!(finalizer), why)));
    }
    let (mut controllers, owners) = (0, metadata["ownerReferences"].as_array());
    for (index, owner) in owners.into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                causes.push(Cause::invalid(path, &json!(""), "must not be empty"));
            }
        }
        controllers += i32::from(owner["controller"] == json!(true));
    }
    if controllers > 1 {
        let why = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid("metadata.ownerReferences", &metadata["ownerReferences"], why));
    }
    causes
}

/// Checks an update of the metadata. Fields that the client omitted keep their values.
pub(crate) fn check_update(old: &Value, object: &mut Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let deleting = meta::is_terminating(old);
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (before, after) = (&old["metadata"][field], &object["metadata"][field]);
        if after.is_null() || after == "" || (field.starts_with("deletion") && !deleting) {
            let before = before.clone();
            meta::set(object, field, Some(before).filter(|value| !value.is_null()));
        } else if before != after {
            causes.push(Cause::invalid(format!("metadata.{field}"), after, "field is immutable"));
        }
    }
    meta::set(object, "selfLink", None);
    meta::set(object, "resourceVersion", old["metadata"].get("resourceVersion").cloned());
    if deleting {
        let known = meta::finalizers(old);
        let added: Vec<_> = meta::finalizers(object).into_iter().filter(|name| !known.contains(name)).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{added:?}"
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    causes
}
