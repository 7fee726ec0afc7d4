//! Pruning, defaulting and validation of objects by the schema of their kind.

use kubewright_apimachinery::{
    schema,
    status::{Cause, Status},
};
use serde_json::Value;

use crate::registry::Resource;

/// Prunes fields that are not in the schema, and returns their paths.
pub(crate) fn prune(resource: &Resource, object: &mut Value) -> Vec<String> {
    schema::prune(resource.schema.node(), object)
}

/// Sets the defaults of the schema.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    schema::default(resource.schema.node(), object);
}

/// Validates an object that is new or replaces `old`. Returns the errors of its fields.
///
/// # Errors
/// Returns 400 for a built-in object with a value of a wrong type, since it can't be decoded.
pub(crate) async fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Result<Vec<Cause>, Status> {
    check_readable(resource, object)?;
    let node = resource.schema.node();
    let causes = schema::validate(node, object, old);
    // CEL rules rely on values having the types of their schema.
    if resource.schema.custom && causes.is_empty() {
        return Ok(schema::rules::validate(node, object, old).await);
    }
    Ok(causes)
}

/// Checks that every value of a built-in object has its type. Custom objects aren't checked.
pub(crate) fn check_readable(resource: &Resource, object: &Value) -> Result<(), Status> {
    if resource.schema.custom {
        return Ok(());
    }
    schema::type_check(resource.schema.node(), object).map_or(Ok(()), |why| Err(unreadable(resource, &why)))
}

/// Returns 400: the body is not an object of this kind.
pub(crate) fn unreadable(resource: &Resource, why: &str) -> Status {
    let (kind, version) = (&resource.kind, &resource.version);
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
}

/// Returns the name of a JSON type in error messages.
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
