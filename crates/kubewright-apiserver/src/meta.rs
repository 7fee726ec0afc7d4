//! Access to the `metadata` of objects that may lack it.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// Returns a text field of the metadata, empty if absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Modifies the metadata, which is added if absent. A value that isn't a JSON object is unchanged.
pub(crate) fn edit(object: &mut Value, change: impl FnOnce(&mut Map<String, Value>)) {
    let Some(fields) = object.as_object_mut() else { return };
    if fields.get("metadata").is_none_or(Value::is_null) {
        fields.insert("metadata".into(), Value::Object(Map::new()));
    }
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        change(metadata);
    }
}

/// Sets a field of the metadata, or removes it if there is no value.
pub(crate) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    edit(object, |metadata| match value {
        Some(value) => {
            metadata.insert(field.into(), value);
        }
        None => {
            metadata.remove(field);
        }
    });
}

/// Returns the finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns whether the object is marked for deletion.
pub(crate) fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Formats a time as `metav1.Time`: whole seconds, UTC.
pub(crate) fn time(at: Timestamp) -> Value {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
}

/// Parses a `metav1.Time`.
pub(crate) fn parse_time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
