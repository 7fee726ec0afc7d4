//! Values of CEL: conversion of JSON values, and optionals.

use std::sync::Arc;

use kube_cel::cel::{
    self,
    objects::{Key, Map, OptionalValue},
};
use serde_json::Value;

/// Converts a value without a schema: types follow JSON, and field names are kept.
pub(crate) fn from_json(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => cel::Value::Int(number),
            (None, Some(number)) => cel::Value::UInt(number),
            _ => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(from_json).collect())),
        Value::Object(map) => {
            let map = map.iter().map(|(name, value)| (key(name), from_json(value))).collect();
            cel::Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// Returns a field's name as a map key.
pub(crate) fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}

/// Returns the content of an optional. `None` if `value` is not an optional.
pub(super) fn optional(value: &cel::Value) -> Option<Option<&cel::Value>> {
    <&OptionalValue>::try_from(value).ok().map(OptionalValue::value)
}

/// Returns an optional with this content.
pub(super) fn optional_of(value: Option<cel::Value>) -> cel::Value {
    cel::Value::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}
