//! Pruning, defaulting and validation of objects by the schema of their kind.

use kubewright_apimachinery::{
    schema,
    status::{Cause, Status},
};
use serde_json::Value;

use crate::registry::Resource;

/// The lists in the metadata that aren't checked by schema.
const CHECKED_BY_RULE: [&str; 2] = ["metadata.managedFields[", "metadata.ownerReferences["];

/// Prunes fields that are not in the schema, and returns their paths.
pub(crate) fn prune(resource: &Resource, object: &mut Value) -> Vec<String> {
    schema::prune(resource.schema.node(), object)
}

/// Sets the defaults of a custom kind's schema. The strategies of built-in kinds set theirs.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    if resource.schema.custom {
        schema::default(resource.schema.node(), object);
    }
}

/// Validates an object that is new or replaces `old`. Returns the errors of its fields. A built-in object, whose types
/// were checked when it was decoded, is only checked for required fields, unless the strategy of the kind does so; it also checks
/// the rest.
pub(crate) async fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    // `object_meta` checks the metadata, by rules that the schema of the kind doesn't contain.
    let has_rule = |path: &str| CHECKED_BY_RULE.iter().any(|list| path.starts_with(list));
    if resource.strategy.has_own_validation() {
        return Vec::new();
    }
    if let Some(ty) = resource.schema.served {
        let missing = ty.missing(object).into_iter().filter(|path| !has_rule(path));
        return missing.map(|path| Cause::required(path, "")).collect();
    }
    let node = resource.schema.node();
    let mut causes = schema::validate(node, object, old);
    causes.retain(|cause| !has_rule(&cause.field));
    // CEL rules rely on values having the types of their schema.
    if causes.is_empty() { schema::rules::validate(node, object, old).await } else { causes }
}

/// Returns 400: the body is not an object of this kind.
pub(crate) fn unreadable(resource: &Resource, why: &str) -> Status {
    Status::bad_request(unreadable_prefix(resource) + why)
}

/// Returns the error about a kind that doesn't exist.
pub(crate) fn unregistered(kind: &Value, version: &str) -> String {
    format!("no kind {kind} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"")
}

/// Returns the reason of an [`unreadable`] body.
pub(crate) fn unreadable_reason<'a>(resource: &Resource, status: &'a Status) -> Option<&'a str> {
    status.message.strip_prefix(&unreadable_prefix(resource)).filter(|_| status.code == 400)
}

fn unreadable_prefix(resource: &Resource) -> String {
    let (kind, version) = (&resource.kind, &resource.version);
    format!("{kind} in version {version:?} cannot be handled as a {kind}: ")
}
