//! The result of a validation: errors and warnings by field, or another reason for denying the request.

use std::{any::Any, error::Error, fmt::Display};

use kubewright_apimachinery::status::{Cause, Status};
use serde::Serialize;
use serde_json::Value;

use crate::object::Object;

/// The number of characters of an invalid value that a message shows.
const SHOWN: usize = 256;

/// The errors and warnings that a [`Validator`](super::Validator) found in an object (Kubernetes: `field.ErrorList`).
/// With at least one error the request is denied, and the response lists all of them.
///
/// Fields are paths such as `spec.schedule`, `spec.ports[0].name` or `metadata.labels[app]`. The messages are worded as
/// in Kubernetes' own validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationErrors {
    causes: Vec<Cause>,
    warnings: Vec<String>,
}

impl ValidationErrors {
    /// Adds the error `Invalid value: <value>: <why>`. A value is shown up to 256 characters.
    pub fn invalid(&mut self, field: impl Into<String>, value: impl Serialize, why: impl Display) -> &mut Self {
        self.cause(Cause::invalid(field, &shown(value), &why.to_string()))
    }

    /// Adds the error `Required value: <why>`. An empty reason is left out.
    pub fn required(&mut self, field: impl Into<String>, why: &str) -> &mut Self {
        self.cause(Cause::required(field, why))
    }

    /// Adds the error `Forbidden: <why>`: the field must not be set, or must not be changed.
    pub fn forbidden(&mut self, field: impl Into<String>, why: &str) -> &mut Self {
        self.cause(Cause::forbidden(field, why))
    }

    /// Adds the error `Unsupported value: <value>: supported values: …`.
    pub fn not_supported(&mut self, field: impl Into<String>, value: impl Serialize, supported: &[&str]) -> &mut Self {
        self.cause(Cause::not_supported(field, &shown(value), supported))
    }

    /// Adds the error `Duplicate value: <value>`.
    pub fn duplicate(&mut self, field: impl Into<String>, value: impl Serialize) -> &mut Self {
        self.cause(Cause::duplicate(field, &shown(value)))
    }

    /// Adds an error with another reason.
    pub fn cause(&mut self, cause: Cause) -> &mut Self {
        self.causes.push(cause);
        self
    }

    /// Adds a warning. `kubectl` shows it, and the request is allowed. The API server truncates it after some 256
    /// characters.
    pub fn warn(&mut self, warning: impl Into<String>) -> &mut Self {
        self.warnings.push(warning.into());
        self
    }

    /// The errors, in the order in which they were added.
    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }

    /// The warnings, in the order in which they were added.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.causes.extend(other.causes);
        self.warnings.extend(other.warnings);
    }

    /// The refusal, if there is an error, and the warnings.
    pub(super) fn judge<K: Object>(self, name: &str) -> (Option<Status>, Vec<String>) {
        let invalid = |causes| Status::invalid(&K::group(&()), &K::kind(&()), name, causes);
        ((!self.causes.is_empty()).then(|| invalid(self.causes)), self.warnings)
    }
}

/// A value as a message shows it.
fn shown(value: impl Serialize) -> Value {
    let value = serde_json::to_value(value).unwrap_or_default();
    let text = match &value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => Value::String(format!("{}…", &text[..end])),
        None => value,
    }
}

/// A denial for another reason than an error in the object.
///
/// Any error converts to it by `?`: a [`Status`] is returned as it is, any other error as an internal error (500),
/// because the webhook failed to decide.
#[derive(Debug)]
pub struct Denied(pub(super) Box<Status>);

impl Denied {
    /// A denial with status 403: the user may not do this, or not now.
    pub fn forbidden(why: impl Into<String>) -> Self {
        Self(Status::new(403, "Forbidden", why).into())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Denied {
    fn from(error: E) -> Self {
        let status = (&error as &dyn Any).downcast_ref::<Status>().cloned();
        Self(status.unwrap_or_else(|| Status::internal(error)).into())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::CronJob;

    use super::*;

    #[test]
    fn all_causes_are_in_one_status() {
        let mut errors = ValidationErrors::default();
        errors.invalid("spec.schedule", "* *", "expected 5 fields, found 2");
        errors.invalid("metadata.name", "x", "must be no more than 52 characters").warn("odd");
        errors.required("spec.jobTemplate", "").forbidden("spec.suspend", "not now");
        let (status, warnings) = errors.judge::<CronJob>("x");
        let status = status.unwrap();
        assert_eq!((status.code, status.reason.as_str(), warnings), (422, "Invalid", vec!["odd".to_owned()]));
        assert_eq!(
            status.message,
            "CronJob.batch \"x\" is invalid: [spec.schedule: Invalid value: \"* *\": expected 5 fields, found 2, \
             metadata.name: Invalid value: \"x\": must be no more than 52 characters, \
             spec.jobTemplate: Required value, spec.suspend: Forbidden: not now]"
        );
        let causes = &status.details.unwrap().causes;
        assert_eq!((causes[0].reason.as_str(), causes[0].field.as_str()), ("FieldValueInvalid", "spec.schedule"));
        assert_eq!(causes[3].reason, "FieldValueForbidden");
    }

    #[test]
    fn a_warning_refuses_nothing() {
        let mut errors = ValidationErrors::default();
        errors.warn("odd");
        assert_eq!(errors.judge::<CronJob>("x"), (None, vec!["odd".to_owned()]));
    }

    #[test]
    fn a_long_value_is_cut() {
        let mut errors = ValidationErrors::default();
        errors.invalid("spec.schedule", "é".repeat(100_000), "too long").invalid("spec", vec![7; 100_000], "odd");
        assert!(errors.causes.iter().all(|cause| cause.message.len() < 600), "{errors:?}");
        assert_eq!(shown(7), Value::from(7));
        assert_eq!(shown("é".repeat(256)), Value::from("é".repeat(256)));
    }

    #[test]
    fn errors_are_internal_and_statuses_are_themselves() {
        let denied = |error: Denied| (error.0.code, error.0.message.clone());
        let (code, message) = denied("x".parse::<u8>().unwrap_err().into());
        assert_eq!((code, message.as_str()), (500, "Internal error occurred: invalid digit found in string"));
        assert_eq!(denied(Status::bad_request("odd").into()), (400, "odd".into()));
        assert_eq!(denied(Denied::forbidden("no")).0, 403);
    }
}
