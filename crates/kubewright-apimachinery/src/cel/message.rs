//! The messages that mutating admission policies construct: `Object{…}`, `Object.spec{…}` and `JSONPatch{…}`.

use std::collections::BTreeMap;

use kube_cel::cel::{
    Value,
    objects::{Key, Opaque},
};
use serde_json::Value as Json;

use super::{conversion, kind, value};
use crate::types::base64;

/// The greatest integer that is a number in JSON, as cel-go converts integers.
const MAX_NUMBER: u64 = (1 << 53) - 1;

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

/// Converts the value of a patch operation to JSON, as cel-go does: what has no type of its own there becomes a string.
pub(super) fn to_patch_value(value: &Value) -> Result<Json, String> {
    let text = |value: &Value| match conversion::string(value) {
        Some(Ok(Value::String(text))) => Ok(Json::from(text.as_str())),
        _ => Err(format!("type conversion not supported for '{}'", kind::name(value))),
    };
    Ok(match value {
        Value::Int(number) if number.unsigned_abs() > MAX_NUMBER => number.to_string().into(),
        Value::UInt(number) if *number > MAX_NUMBER => number.to_string().into(),
        Value::Float(number) => double(*number)?,
        Value::Duration(_) | Value::Timestamp(_) => text(value)?,
        Value::Bytes(bytes) => base64::encode(bytes).into(),
        Value::List(items) => items.iter().map(to_patch_value).collect::<Result<Vec<_>, _>>()?.into(),
        Value::Map(map) => {
            let entries = map.map.iter().map(|(key, value)| match key {
                Key::String(key) => Ok((key.as_str().to_owned(), to_patch_value(value)?)),
                Key::Int(_) => Err("unsupported type conversion from 'int' to string".to_owned()),
                Key::Uint(_) => Err("unsupported type conversion from 'uint' to string".to_owned()),
                Key::Bool(_) => Err("type conversion error from bool to 'string'".to_owned()),
            });
            Json::Object(entries.collect::<Result<_, _>>()?)
        }
        Value::Opaque(_) if message(value).is_none() => match value::optional(value) {
            Some(Some(inner)) => to_patch_value(inner)?,
            Some(None) => return Err("optional.none() dereference".to_owned()),
            None if kind::name_of_type(value).is_some() => text(value)?,
            None => {
                let name = kind::name(value);
                let name = match name.rsplit_once('.') {
                    Some(("kubernetes" | "net", "NamedFormat")) => "Format",
                    Some(("kubernetes" | "net", last)) => last,
                    _ => &name,
                };
                return Err(format!("type conversion error from '{name}' to '*structpb.Value'"));
            }
        },
        other => to_json(other)?,
    })
}

/// Converts a double to the shortest JSON number.
fn double(number: f64) -> Result<Json, String> {
    let shown = match number {
        number if number.is_nan() => "NaN",
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        #[allow(clippy::cast_possible_truncation, reason = "an integer of at most 53 bits")]
        number if number.fract() == 0.0 && number.abs() < 9e15 => return Ok((number as i64).into()),
        number => return Ok(number.into()),
    };
    Err(format!(
        "json: error calling MarshalJSON for type *structpb.Value: proto:\u{a0}google.protobuf.Value.number_value: invalid \
         {shown} value"
    ))
}
