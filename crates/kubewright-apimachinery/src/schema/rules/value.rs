//! Values as rules see them.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use kube_cel::cel::{
    self,
    objects::{Key, Map as CelMap},
};
use serde_json::{Map, Number, Value};

use super::{
    super::{Additional, Kind, Node},
    program,
};

/// Words of the language that can't be names.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// A value of the type that its schema gives it. `resource` says that it is a whole object.
pub(super) fn to_cel(node: Node<'_>, resource: bool, value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => to_number(node, number),
        Value::String(text) => to_text(node, text),
        Value::Array(items) => {
            cel::Value::List(Arc::new(items.iter().map(|item| to_cel(node.items(), false, item)).collect()))
        }
        Value::Object(map) => to_map(node, resource || node.schema().embedded_resource, map),
    }
}

/// A value that has no schema: every type is as JSON shows it, and every field keeps its name.
pub(super) fn untyped(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => cel::Value::Int(number),
            (None, Some(number)) => cel::Value::UInt(number),
            _ => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(untyped).collect())),
        Value::Object(map) => {
            let map = map.iter().map(|(name, value)| (key(name), untyped(value))).collect();
            cel::Value::Map(CelMap { map: Arc::new(map) })
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

/// Texts with a format are what they stand for. What doesn't stand for anything stays a text.
fn to_text(node: Node<'_>, text: &str) -> cel::Value {
    let format = node.schema().format.as_deref().filter(|_| !node.schema().int_or_string);
    let meant = match format {
        Some("date-time" | "datetime") => program::call("timestamp", text),
        Some("date") => program::call("timestamp", &format!("{text}T00:00:00Z")),
        Some("duration") => program::call("duration", text),
        Some("byte") => program::call("base64.decode", text),
        _ => None,
    };
    meant.unwrap_or_else(|| cel::Value::String(Arc::new(text.to_owned())))
}

/// Of an object with named fields, a rule sees these; of a map with free names, all.
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
            if let Some(escaped) = escape(name) {
                seen.insert(key(&escaped), to_cel(Node::new(property, node.definitions()), false, value));
            }
        } else if let Some(node) = node.field(name).filter(|_| free) {
            seen.insert(key(name), to_cel(node, false, value));
        }
    }
    cel::Value::Map(CelMap { map: Arc::new(seen) })
}

/// Of an object's metadata, a rule sees its names only.
fn to_metadata(metadata: &Value) -> cel::Value {
    let names = ["name", "generateName"].into_iter().filter_map(|name| {
        let text = metadata.get(name)?.as_str()?;
        Some((key(name), cel::Value::String(Arc::new(text.to_owned()))))
    });
    cel::Value::Map(CelMap { map: Arc::new(names.collect()) })
}

fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}

/// The name by which a rule calls a field; `None` when there is no way to.
fn escape(name: &str) -> Option<Cow<'_, str>> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__").into());
    }
    let letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'.' | b'-' | b'/');
    let first = name.bytes().next()?;
    if !letter(first) || !name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit()) {
        return None;
    }
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return Some(name.into());
    }
    let escaped = name.replace("__", "__underscores__");
    let escaped = escaped.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__");
    Some(escaped.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        for (name, expect) in [
            ("replicas", Some("replicas")),
            ("my_field", Some("my_field")),
            ("redact__d", Some("redact__underscores__d")),
            ("namespace", Some("__namespace__")),
            ("x-prop", Some("x__dash__prop")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("0day", None),
            ("ü", None),
            ("", None),
        ] {
            assert_eq!(escape(name).as_deref(), expect, "{name}");
        }
    }
}
