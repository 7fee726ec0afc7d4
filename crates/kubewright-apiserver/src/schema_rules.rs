//! Pruning, defaulting and validation of objects by the schema of their kind.

use kubewright_apimachinery::{
    go_format, schema,
    status::{Cause, Status},
    types::json_type,
};
use serde_json::Value;

use crate::{
    object_meta,
    registry::{Resource, Scale},
};

/// The lists in the metadata that aren't checked by schema.
const CHECKED_BY_RULE: [&str; 3] = ["metadata.finalizers[", "metadata.managedFields[", "metadata.ownerReferences["];

/// Prunes fields that are not in the schema, and returns their paths.
pub(crate) fn prune(resource: &Resource, object: &mut Value) -> Vec<String> {
    schema::prune(resource.schema.node(), object)
}

/// Removes nulls that the schema of a custom kind doesn't allow. The types of built-in kinds have no nulls.
pub(crate) fn drop_nulls(resource: &Resource, object: &mut Value) {
    if resource.schema.custom {
        schema::drop_nulls(resource.schema.node(), object);
    }
}

/// Sets the defaults of a custom kind's schema. The strategies of built-in kinds set theirs.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    if resource.schema.custom {
        schema::default(resource.schema.node(), object);
    }
}

/// Validates an object that is new or replaces `old`, in a write of the whole object or of its status. Adds the errors
/// of its fields to those of its metadata. Unchanged values that violate rules in CEL are only warned about. A built-in
/// object, whose types were checked when it was decoded, is only checked for required fields, unless the strategy of
/// the kind does so; it also checks the rest.
pub(crate) async fn validate(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    status_only: bool,
    causes: &mut Vec<Cause>,
    warnings: &mut Vec<String>,
) {
    // `object_meta` checks the metadata, by rules that the schema of the kind doesn't contain.
    let has_rule = |path: &str| CHECKED_BY_RULE.iter().any(|list| path.starts_with(list));
    if resource.strategy.has_own_validation() {
        return;
    }
    if let Some(ty) = resource.schema.served {
        let missing = ty.missing(object).into_iter().filter(|path| !has_rule(path));
        causes.extend(missing.map(|path| Cause::required(path, "")));
        return;
    }
    let node = resource.schema.node();
    let mut violations = schema::validate(node, object, old);
    violations.retain(|cause| !has_rule(&cause.field));
    if status_only {
        // Kubernetes validates the status alone, as a document of its own.
        violations.iter_mut().for_each(without_status);
    }
    // In Kubernetes, a later step checks the items of sets and maps.
    let (repeated, violations): (Vec<_>, Vec<_>) =
        violations.into_iter().partition(|cause| cause.reason == "FieldValueDuplicate");
    causes.extend(violations);
    if let Some(scale) = &resource.scale {
        causes.extend(check_scale(scale, object, status_only));
    }
    causes.extend(object_meta::check_embedded(resource, object));
    causes.extend(repeated);
    if causes.iter().any(|cause| BLOCKING.contains(&&*cause.reason)) {
        causes.extend(unchecked(resource));
        return;
    }
    let violations = schema::rules::validate(node, object, old).await;
    causes.extend(violations.causes);
    warnings.extend(violations.unchanged.iter().map(ToString::to_string));
}

/// Returns the error that the rules in CEL of a custom kind, if it has any, weren't evaluated.
fn unchecked(resource: &Resource) -> Option<Cause> {
    const WHY: &str = "some validation rules were not checked because the object was invalid; correct the existing \
                       errors to complete validation";
    let has_rules = resource.schema.custom && schema::rules::any(resource.schema.node().schema());
    has_rules.then(|| Cause::invalid("<nil>", &Value::Null, WHY))
}

/// The reasons of violations after which rules in CEL aren't evaluated, since they rely on the types and sizes of
/// values.
const BLOCKING: [&str; 5] =
    ["FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"];

/// The field of causes about values that fit none of several schemas.
const UNATTRIBUTED: &str = "<nil>";

/// Names the field in the message of a cause relative to the status.
fn without_status(cause: &mut Cause) {
    if cause.field == UNATTRIBUTED {
        cause.field = "status".to_owned();
        cause.message = cause.message.replacen("\"status.", "\"", 1).replacen("\"status\"", "\"\"", 1);
    } else if let Some(field) = cause.field.strip_prefix("status") {
        let (whole, inner) = (format!("{} in body", cause.field), field.trim_start_matches('.'));
        cause.message = cause.message.replace(&whole, &format!("{inner} in body"));
    }
}

/// Checks the numbers of replicas and the selector of a custom object, whatever its schema says.
fn check_scale(scale: &Scale, object: &Value, status_only: bool) -> Vec<Cause> {
    let number = |path: &str| {
        let (number, why) = match nested(object, path) {
            Err(why) => (0, why),
            Ok(None) => return None,
            Ok(Some(value)) => match value.as_i64() {
                None => (0, not_expected(path, value, "int64")),
                Some(number @ ..0) => (number, "should be a non-negative integer".to_owned()),
                Some(0..=2_147_483_647) => return None,
                Some(number) => (number, "should be less than or equal to 2147483647".to_owned()),
            },
        };
        Some(Cause::invalid(path, &number.into(), &why))
    };
    let selector = |path: &str| {
        let why = match nested(object, path) {
            Err(why) => why,
            Ok(Some(value)) if !value.is_string() => not_expected(path, value, "string"),
            Ok(_) => return None,
        };
        Some(Cause::invalid(path, &"".into(), &why))
    };
    let spec = (!status_only).then(|| number(&scale.spec_replicas)).flatten();
    let selector = scale.selector.as_deref().and_then(selector);
    spec.into_iter().chain(number(&scale.status_replicas)).chain(selector).collect()
}

/// Returns the value at a path such as `.spec.replicas`, if there is one.
fn nested<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let mut seen = String::new();
    for name in path.trim_start_matches('.').split('.') {
        seen += &format!(".{name}");
        value = match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(name) {
                Some(value) => value,
                None => return Ok(None),
            },
            other => return Err(not_expected(&seen, other, "map[string]interface{}")),
        };
    }
    Ok(Some(value))
}

/// Returns the error of Kubernetes about a value of another type than is expected at a path.
fn not_expected(path: &str, value: &Value, expected: &str) -> String {
    let (shown, found) = (go_format::plain(value), go_format::type_name(value));
    format!("{path} accessor error: {shown} is of the type {found}, expected {expected}")
}

/// Returns 400: the body is not an object of this kind.
pub(crate) fn unreadable(resource: &Resource, why: &str) -> Status {
    Status::bad_request(unreadable_prefix(resource) + why)
}

/// Returns the error about a kind that doesn't exist.
pub(crate) fn unregistered(kind: &Value, version: &str) -> String {
    format!("no kind {kind} is registered for version {version:?} in scheme {SCHEME:?}")
}

/// Returns the error about a type of Go that has no kind.
pub(crate) fn unregistered_type(version: &str, name: &str) -> String {
    format!("no kind is registered for the type {version}.{name} in scheme {SCHEME:?}")
}

/// The name of Kubernetes' table of kinds, in errors.
const SCHEME: &str = "pkg/runtime/scheme.go:111";

/// The type into which Kubernetes reads the kind of an object.
const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// Returns why a value is no object, if so.
pub(crate) fn not_an_object(value: &Value) -> Option<String> {
    if value.is_object() {
        return None;
    }
    let found = json_type(value);
    Some(format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type {TYPE_META}"
    ))
}

/// Returns the reason of an [`unreadable`] body, or of one that is of another kind than this.
pub(crate) fn unreadable_reason<'a>(kind: &str, status: &'a Status) -> Option<&'a str> {
    let (sent, why) = status.message.split_once(&format!(" cannot be handled as a {kind}: "))?;
    Some(why).filter(|_| status.code == 400 && sent.contains(" in version "))
}

/// Returns the reason why an applied configuration can't be read. Kubernetes has parsed it before it reads it as an
/// object of its kind, so the errors about its values are others than those about a body.
pub(crate) fn unstructured_reason(why: &str) -> String {
    let integer = why.rsplit_once(" of type ").map(|(_, of)| of).filter(|of| of.starts_with("int"));
    match integer.filter(|_| why.starts_with("json: cannot unmarshal number")) {
        Some(integer) => format!("cannot convert float64 to {integer}"),
        None if why.starts_with("illegal base64") => format!("error decoding from json: {why}"),
        None => why.to_owned(),
    }
}

fn unreadable_prefix(resource: &Resource) -> String {
    let (kind, version) = (&resource.kind, &resource.version);
    format!("{kind} in version {version:?} cannot be handled as a {kind}: ")
}
