//! Schema-based conversion of values to CEL.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use kube_cel::cel::{
    self,
    objects::{KeyRef, Map as CelMap, OptionalValue},
};
use serde_json::{Map, Number, Value};

use crate::{
    cel::{Associative, convert, duration, escape, is_alias, timestamp, value::key},
    schema::{Additional, Kind, List, Node},
};

/// Converts a value by its schema. `resource` is true for a whole object.
pub(super) fn to_cel(node: Node<'_>, resource: bool, value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => to_number(node, number),
        Value::String(text) => to_text(node, text),
        Value::Array(items) => to_list(node, items),
        Value::Object(map) => to_map(node, resource || node.schema().embedded_resource, map),
    }
}

fn to_list(node: Node<'_>, items: &[Value]) -> cel::Value {
    let items = items.iter().map(|item| to_cel(node.items(), false, item)).collect();
    match &node.schema().list {
        List::Unspecified | List::Atomic => cel::Value::List(Arc::new(items)),
        List::Set => Associative::value(items, None),
        List::Map(keys) => {
            let keys = keys.iter().map(|name| key(&escape(name).unwrap_or(Cow::Borrowed(name))));
            Associative::value(items, Some(keys.collect()))
        }
    }
}

fn to_number(node: Node<'_>, number: &Number) -> cel::Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(number), _) if node.schema().kind != Some(Kind::Number) => cel::Value::Int(number),
        (None, Some(number)) if node.schema().kind != Some(Kind::Number) => cel::Value::UInt(number),
        _ => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

/// Converts a string by its format. A string that doesn't match its format remains a string.
fn to_text(node: Node<'_>, text: &str) -> cel::Value {
    let format = node.schema().format.as_deref().filter(|_| !node.schema().int_or_string);
    let meant = match format {
        Some("date-time" | "datetime") => timestamp(&text.to_ascii_uppercase()),
        Some("date") => timestamp(&format!("{text}T00:00:00Z")),
        Some("duration") => duration(text),
        Some("byte") => convert("base64.decode", text),
        _ => None,
    };
    meant.unwrap_or_else(|| cel::Value::String(Arc::new(text.to_owned())))
}

/// Converts an object: its declared fields, or all entries of a map.
fn to_map(node: Node<'_>, resource: bool, map: &Map<String, Value>) -> cel::Value {
    let schema = node.schema();
    let structured = resource || !schema.properties.is_empty();
    let free = !structured || !matches!(schema.additional, Additional::Unspecified | Additional::Allowed(false));
    let mut seen = HashMap::with_capacity(map.len());
    for (name, value) in map {
        if resource && name == "metadata" {
            seen.insert(key("metadata"), to_metadata(value));
        } else if resource && matches!(name.as_str(), "apiVersion" | "kind") {
            seen.insert(key(name), to_cel(node, false, value));
        } else if let Some(property) = schema.properties.get(name) {
            // A declared field that is null counts as absent.
            if let Some(escaped) = escape(name).filter(|_| !value.is_null()) {
                let value = to_cel(Node::new(property, node.definitions()), false, value);
                if is_alias(name) {
                    seen.insert(key(name), value.clone());
                }
                seen.insert(key(&escaped), value);
            }
        } else if let Some(node) = node.field(name).filter(|_| free) {
            seen.insert(key(name), to_cel(node, false, value));
        }
    }
    cel::Value::Map(CelMap { map: Arc::new(seen) })
}

/// Returns a field of an object that is already converted to CEL. `None` if rules on the object can't access it.
pub(super) fn field_of(node: Node<'_>, object: &cel::Value, name: &str) -> Option<cel::Value> {
    let cel::Value::Map(map) = object else { return None };
    let name = if node.schema().properties.contains_key(name) { escape(name)? } else { Cow::Borrowed(name) };
    map.get(&KeyRef::String(&name)).cloned()
}

/// Returns an optional value.
pub(super) fn optional(value: Option<cel::Value>) -> cel::Value {
    cel::Value::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

/// Converts an object's metadata. Rules can access only `name` and `generateName`.
fn to_metadata(metadata: &Value) -> cel::Value {
    let names = ["name", "generateName"].into_iter().filter_map(|name| {
        let text = metadata.get(name)?.as_str()?;
        Some((key(name), cel::Value::String(Arc::new(text.to_owned()))))
    });
    cel::Value::Map(CelMap { map: Arc::new(names.collect()) })
}
