//! The fields of a decoded object.
//!
//! An absent field, null, and a value of another type count as the zero value of the field's type.

use serde_json::Value;

/// Returns a field that is present and not null.
pub(in crate::registry::builtin) fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

/// Returns a string field, empty if absent.
pub(in crate::registry::builtin) fn string<'a>(object: &'a Value, name: &str) -> &'a str {
    optional_string(object, name).unwrap_or_default()
}

/// Returns a string field that is present.
pub(in crate::registry::builtin) fn optional_string<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str)
}

/// Returns a number field, 0 if absent.
pub(in crate::registry::builtin) fn int(object: &Value, name: &str) -> i64 {
    optional_int(object, name).unwrap_or_default()
}

/// Returns a number field that is present.
pub(in crate::registry::builtin) fn optional_int(object: &Value, name: &str) -> Option<i64> {
    object.get(name).and_then(Value::as_i64)
}

/// Returns a boolean field, false if absent.
pub(in crate::registry::builtin) fn boolean(object: &Value, name: &str) -> bool {
    object.get(name) == Some(&Value::Bool(true))
}

/// Returns the elements of a list field.
pub(in crate::registry::builtin) fn items<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the strings of a list field.
pub(in crate::registry::builtin) fn strings<'a>(
    object: &'a Value,
    name: &str,
) -> impl ExactSizeIterator<Item = &'a str> + Clone + use<'a> {
    items(object, name).iter().map(|item| item.as_str().unwrap_or_default())
}

/// Returns the entries of a map field.
pub(in crate::registry::builtin) fn entries<'a>(
    object: &'a Value,
    name: &str,
) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
    object.get(name).and_then(Value::as_object).into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

/// Returns the value of a map's entry as a string.
pub(in crate::registry::builtin) fn entry<'a>(object: &'a Value, name: &str, key: &str) -> Option<&'a str> {
    object.get(name)?.get(key)?.as_str()
}
