//! What a kind's schema does to an object: pruning, defaulting, validation.

use kubewright_apimachinery::{
    schema,
    status::{Cause, Status},
};
use serde_json::Value;

use crate::registry::Resource;

/// Drops what the schema doesn't know, and tells where it was.
pub(crate) fn prune(resource: &Resource, object: &mut Value) -> Vec<String> {
    schema::prune(resource.schema.node(), object)
}

/// Fills in the schema's defaults.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    schema::default(resource.schema.node(), object);
}

/// Checks an object; `old` is what it replaces. A built-in object with a value of a wrong type cannot even be read, which
/// is 400; all else is for the caller to answer.
pub(crate) async fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Result<Vec<Cause>, Status> {
    check_readable(resource, object)?;
    let node = resource.schema.node();
    let causes = schema::validate(node, object, old);
    // Rules rely on values being of their schema's types.
    if resource.schema.custom && causes.is_empty() {
        return Ok(schema::rules::validate(node, object, old).await);
    }
    Ok(causes)
}

/// Whether a built-in object can be read at all: every value is of its type. Custom objects always can.
pub(crate) fn check_readable(resource: &Resource, object: &Value) -> Result<(), Status> {
    if resource.schema.custom {
        return Ok(());
    }
    schema::type_check(resource.schema.node(), object).map_or(Ok(()), |why| Err(unreadable(resource, &why)))
}

/// 400: the body isn't an object of this kind.
pub(crate) fn unreadable(resource: &Resource, why: &str) -> Status {
    let (kind, version) = (&resource.kind, &resource.version);
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
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
