//! What a kind's schema does to an object: pruning, defaulting, validation.

use kubewright_apimachinery::status::{Cause, Status};
use serde_json::Value;

use crate::registry::Resource;

/// Drops what the schema doesn't know, and tells where it was.
pub(crate) fn prune(_resource: &Resource, _object: &mut Value) -> Vec<String> {
    Vec::new()
}

/// Fills in the schema's defaults.
pub(crate) fn default(_resource: &Resource, _object: &mut Value) {}

/// Checks an object; `old` is what it replaces. A built-in object of wrong types is a malformed request.
pub(crate) fn validate(_resource: &Resource, _object: &Value, _old: Option<&Value>) -> Result<Vec<Cause>, Status> {
    Ok(Vec::new())
}

/// A JSON type, as error messages name it.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
