//! The messages that mutating admission policies construct: `Object{…}`, `Object.spec{…}` and `JSONPatch{…}`.

use std::collections::BTreeMap;

use kube_cel::cel::{
    Value,
    objects::{Key, Opaque},
};
use serde_json::Value as Json;

/// The type of a patch operation.
pub(super) const JSON_PATCH: &str = "JSONPatch";
/// The type of an apply configuration. Those of its fields are named by their paths, such as `Object.spec`.
pub(super) const OBJECT: &str = "Object";

/// A constructed message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    pub(super) name: String,
    pub(super) fields: BTreeMap<String, Value>,
}

impl Eq for Message {}

impl Opaque for Message {
    fn runtime_type_name(&self) -> &str {
        &self.name
    }
}

/// Returns whether a message of this type exists.
pub(super) fn is_known(name: &str) -> bool {
    name == JSON_PATCH || name == OBJECT || name.strip_prefix(OBJECT).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns a constructed message, or `None` for other values.
pub(super) fn message(value: &Value) -> Option<&Message> {
    match value {
        Value::Opaque(opaque) => opaque.downcast_ref(),
        _ => None,
    }
}

/// Checks that the types of messages are the paths at which they are used.
pub(super) fn check_paths(value: &Value, path: &str) -> Result<(), String> {
    let mut errors = Vec::new();
    collect_misplaced(value, path, &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

fn collect_misplaced(value: &Value, path: &str, errors: &mut Vec<String>) {
    if let Some(message) = message(value) {
        if message.name != path {
            errors.push(format!(
                "unexpected type name {:?}, expected {path:?}, which matches field name path from root Object type",
                message.name
            ));
        }
        for (name, field) in &message.fields {
            collect_misplaced(field, &format!("{path}.{name}"), errors);
        }
    }
    match value {
        Value::List(items) => items.iter().for_each(|item| collect_misplaced(item, path, errors)),
        Value::Map(map) => map.map.values().for_each(|item| collect_misplaced(item, path, errors)),
        _ => {}
    }
}

/// Converts a value to JSON. The error names the type that has no JSON form.
pub(super) fn to_json(value: &Value) -> Result<Json, String> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::UInt(value) => (*value).into(),
        Value::Float(value) => (*value).into(),
        Value::String(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(to_json).collect::<Result<Vec<_>, _>>()?.into(),
        Value::Map(map) => {
            let entries = map.map.iter().map(|(key, value)| match key {
                Key::String(key) => Ok((key.as_str().to_owned(), to_json(value)?)),
                key => Err(format!("map key {key} is not a string")),
            });
            Json::Object(entries.collect::<Result<_, _>>()?)
        }
        other => match message(other) {
            Some(message) => {
                let fields = message.fields.iter().map(|(name, value)| Ok((name.clone(), to_json(value)?)));
                Json::Object(fields.collect::<Result<_, String>>()?)
            }
            None => return Err(format!("{} has no JSON form", other.type_of())),
        },
    })
}
