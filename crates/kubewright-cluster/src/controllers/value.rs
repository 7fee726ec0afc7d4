//! Accessors for objects as JSON values. Absent values read as empty, zero or false.

use jiff::Timestamp;
use kubewright_apimachinery::{pointer, selector::LabelSelector};
use serde_json::{Value, json};

use crate::events::written;

/// Returns the text at a JSON pointer.
pub(crate) fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    pointer::get(value, at).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the integer at a JSON pointer.
pub(crate) fn number(value: &Value, at: &str) -> Option<i64> {
    pointer::get(value, at).and_then(Value::as_i64)
}

/// Returns the integer at a JSON pointer, or 0.
pub(crate) fn int(value: &Value, pointer: &str) -> i64 {
    number(value, pointer).unwrap_or_default()
}

/// Returns the boolean at a JSON pointer.
pub(crate) fn flag(value: &Value, at: &str) -> bool {
    pointer::get(value, at).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns the list at a JSON pointer.
pub(crate) fn list<'a>(value: &'a Value, at: &str) -> &'a [Value] {
    pointer::get(value, at).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns an integer, or a percentage of `total`; 0 if it is neither.
pub(crate) fn amount(value: &Value, total: i64, round_up: bool) -> i64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    match (value.as_i64(), percent) {
        (Some(number), _) => number,
        (_, Some(percent)) if round_up => (percent * total + 99).div_euclid(100),
        (_, Some(percent)) => (percent * total).div_euclid(100),
        _ => 0,
    }
}

/// Returns the time at a JSON pointer.
pub(crate) fn time(value: &Value, pointer: &str) -> Option<Timestamp> {
    text(value, pointer).parse().ok()
}

/// Returns whether an object is being deleted.
pub(crate) fn is_deleting(value: &Value) -> bool {
    !value["metadata"]["deletionTimestamp"].is_null()
}

/// Returns the controller reference of an object.
pub(crate) fn controller_of(value: &Value) -> Option<&Value> {
    list(value, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true)
}

/// Returns whether a selector matches an object's labels.
pub(crate) fn selects(selector: &LabelSelector, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    selector.matches(|key| labels.get(key).and_then(Value::as_str))
}

/// Returns the selector at a JSON pointer; an invalid one selects nothing.
pub(crate) fn selector(object: &Value, pointer: &str) -> LabelSelector {
    LabelSelector::from_object(object.pointer(pointer).unwrap_or(&Value::Null))
        .unwrap_or_else(|_| LabelSelector::nothing())
}

/// Returns an object's condition of a type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|one| one["type"] == kind)
}

/// Returns the controller reference that makes `owner` the controller.
pub(crate) fn controller_reference(owner: &Value, api_version: &str, kind: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "controller": true, "blockOwnerDeletion": true,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    })
}

/// Formats a time as in a status.
pub(crate) fn stamp(time: Timestamp) -> Value {
    written(time).into()
}

/// Returns whether an object's condition is true.
pub(crate) fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|one| one["status"] == "True")
}
