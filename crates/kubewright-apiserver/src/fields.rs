//! Access to the fields of untyped objects.
//!
//! Defaults are set before the schema is checked, so a value may have any type. A value of the wrong type is read as
//! absent and left unchanged.

use kubewright_apimachinery::pointer;
use serde_json::{Map, Value};

static EMPTY: Vec<Value> = Vec::new();

/// Returns the string at a JSON pointer, empty if absent.
pub(crate) fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    pointer::get(value, at).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the number at a JSON pointer, 0 if absent.
pub(crate) fn int(value: &Value, at: &str) -> i64 {
    pointer::get(value, at).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns the boolean at a JSON pointer, false if absent.
pub(crate) fn flag(value: &Value, at: &str) -> bool {
    pointer::get(value, at) == Some(&Value::Bool(true))
}

/// Returns the list at a JSON pointer, empty if absent.
pub(crate) fn list<'a>(value: &'a Value, at: &str) -> &'a [Value] {
    pointer::get(value, at).and_then(Value::as_array).unwrap_or(&EMPTY)
}

/// Returns whether the value at a JSON pointer exists and is not null.
pub(crate) fn has(value: &Value, at: &str) -> bool {
    pointer::get(value, at).is_some_and(|value| !value.is_null())
}

/// Returns the entries of the map at a JSON pointer.
pub(crate) fn entries<'a>(value: &'a Value, at: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    pointer::get(value, at).and_then(Value::as_object).into_iter().flatten()
}

/// Returns the elements of a list field for modification.
pub(crate) fn each<'a>(value: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Sets a field that is absent or null.
pub(crate) fn fill(value: &mut Value, field: &str, default: impl Into<Value>) {
    if let Value::Object(map) = value
        && map.get(field).is_none_or(Value::is_null)
    {
        map.insert(field.into(), default.into());
    }
}

/// Sets a field that is absent, null, or empty text or 0, which Go's clients send for fields without a value.
pub(crate) fn fill_zero(value: &mut Value, field: &str, default: impl Into<Value>) {
    if value.get(field).is_some_and(|value| value == "" || value == 0) {
        remove(value, field);
    }
    fill(value, field, default);
}

/// Sets a field.
pub(crate) fn set(value: &mut Value, field: &str, to: impl Into<Value>) {
    if let Value::Object(map) = value {
        map.insert(field.into(), to.into());
    }
}

/// Removes a field.
pub(crate) fn remove(value: &mut Value, field: &str) -> Option<Value> {
    value.as_object_mut()?.remove(field)
}

/// Modifies an object field, which is added if absent.
pub(crate) fn within(value: &mut Value, field: &str, change: impl FnOnce(&mut Value)) {
    fill(value, field, Map::new());
    present(value, field, change);
}

/// Modifies a field that is present and not null.
pub(crate) fn present(value: &mut Value, field: &str, change: impl FnOnce(&mut Value)) {
    if let Some(child) = value.get_mut(field).filter(|child| !child.is_null()) {
        change(child);
    }
}
