//! Errors as Kubernetes returns them: the `Status` object of `meta/v1`.
//!
//! Messages have kube-apiserver's wording, since users and tools search for them
//! (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/>).

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::go_format;

/// An error response. `Display` prints the message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The HTTP code.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`; empty for some errors of kube-apiserver.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message, which names the object.
    pub message: String,
    /// Structured details of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
}

/// The object that a [`Status`] is about, and the causes of the error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The object's group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource or, for `Invalid`, the kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One entry for each problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Seconds after which a retry may help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// One problem of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message, without the field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field's path, such as `spec.replicas`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Cause {
    /// Creates a cause with an arbitrary reason.
    pub fn new(reason: &str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into(), field: field.into() }
    }

    /// Creates a cause `Required value`, followed by the reason unless it is empty.
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let message = if why.is_empty() { "Required value".into() } else { format!("Required value: {why}") };
        Self::new("FieldValueRequired", field, message)
    }

    /// Creates a cause `Invalid value: <value>: <why>`. Strings are quoted, composite values are shown as JSON.
    pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {}: {why}", shown(value)))
    }

    /// Creates a cause `Forbidden: <why>`.
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// Creates a cause `Internal error: <why>`.
    pub fn internal(field: impl Into<String>, why: &str) -> Self {
        Self::new("InternalError", field, format!("Internal error: {why}"))
    }

    /// Creates a cause `Unsupported value: <value>: supported values: …`.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ");
        Self::new(
            "FieldValueNotSupported",
            field,
            format!("Unsupported value: {}: supported values: {list}", shown(value)),
        )
    }

    /// Creates a cause `Too many: <found>: must have at most <most> items`.
    pub fn too_many(field: impl Into<String>, found: usize, most: usize) -> Self {
        Self::new("FieldValueTooMany", field, format!("Too many: {found}: must have at most {most} items"))
    }

    /// Creates a cause `Duplicate value: <value>`.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {}", shown(value)))
    }
}

/// Returns a value as errors show it: strings as Go quotes them, others as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_format::quoted(text),
        other => other.to_string(),
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.field, self.message) }
    }
}

/// Returns the message about these errors, each of them once: the only one, or a list in brackets. `None` if there are
/// none. Kubernetes' library for Go has this form as `Aggregate`.
pub fn aggregate(errors: &[impl fmt::Display]) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    texts.retain(|text| seen.insert(text.clone()));
    match texts.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

/// Returns a resource with its group, such as `podsets.app.example.com`, or `pods` in the core group.
fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.into() } else { format!("{resource}.{group}") }
}

impl Status {
    /// Creates an error with an arbitrary code and reason.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), details: None }
    }

    fn about(code: u16, reason: &str, group: &str, kind: &str, name: &str, message: String) -> Self {
        let details = Details { name: name.into(), group: group.into(), kind: kind.into(), ..Details::default() };
        Self { details: Some(details.into()), ..Self::new(code, reason, message) }
    }

    /// 404: the object does not exist.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(resource, group));
        Self::about(404, "NotFound", group, resource, name, message)
    }

    /// 404: the path does not exist.
    pub fn no_such_resource() -> Self {
        Self::generic(404, "NotFound", "the server could not find the requested resource")
    }

    /// 405: the path does not support the method.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::generic(405, "MethodNotAllowed", message)
    }

    /// 405: the resource does not support the verb.
    pub fn method_not_supported(group: &str, resource: &str, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind {:?}", qualified(resource, group));
        Self::about(405, "MethodNotAllowed", group, resource, "", message)
    }

    /// Creates an error that is not about an object. Its details are present but empty.
    pub fn generic(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self { details: Some(Box::default()), ..Self::new(code, reason, message) }
    }

    /// 409: an object with that name exists.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(resource, group));
        Self::about(409, "AlreadyExists", group, resource, name, message)
    }

    /// 409: the write conflicts with the object's current state.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(resource, group));
        Self::about(409, "Conflict", group, resource, name, message)
    }

    /// 409: the write was based on an older version of the object.
    pub fn stale(group: &str, resource: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, resource, name, why)
    }

    /// 422: the object is invalid, for the given causes.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let list = aggregate(&causes).map(|list| format!(": {list}")).unwrap_or_default();
        let message = format!("{} {name:?} is invalid{list}", qualified(kind, group));
        let mut status = Self::about(422, "Invalid", group, kind, name, message);
        if let Some(details) = &mut status.details {
            details.causes = causes;
        }
        status
    }

    /// 400: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403: the request is not allowed.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", qualified(resource, group))
        } else {
            format!("{} {name:?} is forbidden: {why}", qualified(resource, group))
        };
        Self::about(403, "Forbidden", group, resource, name, message)
    }

    /// 410: the requested resource version is not available, or no longer available.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 500: an internal error of the server.
    pub fn internal(message: impl fmt::Display) -> Self {
        let cause = Cause::new("", "", message.to_string());
        let details = Details { causes: vec![cause], ..Details::default() };
        let message = format!("Internal error occurred: {message}");
        Self { details: Some(details.into()), ..Self::new(500, "InternalError", message) }
    }

    /// 500 without a reason: Kubernetes passes on the error of another library.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// Returns the response body.
    pub fn to_json(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = self.reason.as_str().into();
        }
        if let Some(details) = &self.details {
            body["details"] = serde_json::to_value(details).unwrap_or_default();
        }
        body
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}
