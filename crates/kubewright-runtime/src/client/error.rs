//! Errors of requests, and their classification.

use std::{error, time::Duration};

use kube::core::{Status, response::StatusCause};
use thiserror::Error;

use super::WorkspaceError;
use crate::owner::OwnerError;

/// A request that failed, or that was refused before it was sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The API server refused the request, or did not respond. Without a response, a write may have taken effect.
    #[error("{verb} {target}: {}", describe(source))]
    Request {
        /// The operation, such as `get`, `apply` or `deletecollection`.
        verb: &'static str,
        /// The resource and the object's key.
        target: String,
        /// The error of kube's client.
        #[source]
        source: Box<kube::Error>,
    },
    /// The reconciled object can't own the other object: see [`OwnerError`].
    #[error(transparent)]
    Owner(Box<OwnerError>),
    /// The workspace of the reconciled object can't be used: see [`WorkspaceError`].
    #[error(transparent)]
    Workspace(Box<WorkspaceError>),
    /// An object of that name exists and is not controlled by the reconciled object.
    #[error("{target} already exists and is controlled by {controller}")]
    NameTaken {
        /// The object that was to be created.
        target: String,
        /// The kind and name of the existing object's controller, or `no controller`.
        controller: String,
    },
    /// The owner is being deleted or no longer exists, so no child is created.
    #[error("{owner} is being deleted: {target} is not created")]
    OwnerGone {
        /// The object that was to be created.
        target: String,
        /// The reconciled object.
        owner: String,
    },
    /// The kind is namespaced, and neither the key nor the client has a namespace.
    #[error("{target} has no namespace: set it in the key or the metadata, or with Client::namespace")]
    NoNamespace {
        /// The resource and the object's key.
        target: String,
    },
    /// The client is limited to another namespace.
    #[error("{target} is in another namespace: the client is limited to the namespace {namespace}")]
    OtherNamespace {
        /// The resource and the object's key.
        target: String,
        /// The client's namespace.
        namespace: String,
    },
    /// A metadata-only client can't create or replace objects.
    #[error("can't {verb} {target} with a metadata-only client: patch or apply it")]
    MetadataOnly {
        /// The operation: `create` or `update`.
        verb: &'static str,
        /// The resource and the object's key.
        target: String,
    },
    /// A reconcile read a type from the cache that its controller does not declare.
    #[error(
        "controller {controller} doesn't declare {kind} as {view}: add .owns, .watches or .reads with this type to the controller"
    )]
    NotDeclared {
        /// The controller's name.
        controller: String,
        /// The kind, such as `PodSet.app.example.com`.
        kind: String,
        /// The Rust type of the read.
        view: &'static str,
    },
    /// The closure passed to change an object changed its name or namespace.
    #[error("{target}: the closure must not change the name or namespace")]
    Renamed {
        /// The object under its original name.
        target: String,
    },
}

impl From<OwnerError> for ClientError {
    fn from(error: OwnerError) -> Self {
        Self::Owner(Box::new(error))
    }
}

impl ClientError {
    /// Returns the API server's `Status`, if the response was one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Request { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// Returns whether an object of that name exists already.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// Returns whether the object has changed since it was read, or another manager owns a field.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(Status::is_conflict)
    }

    /// Returns whether the requested resource version or continue token has expired (410).
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.code == 410)
    }

    /// Returns whether the request was forbidden: a role is missing, a quota is exceeded, or an admission plugin denied
    /// it.
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(Status::is_forbidden)
    }

    /// Returns whether the object failed validation.
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(Status::is_invalid)
    }

    /// Returns the API server's message if it rejected the request: a role or quota is missing, the object is invalid,
    /// or its namespace is terminating. A retry helps only after something else has changed. Conflicts (409) and
    /// throttling (429) are not rejections.
    pub fn refusal(&self) -> Option<&str> {
        let status = self.status()?;
        (matches!(status.code, 400..=499) && !matches!(status.code, 409 | 429)).then_some(status.message.as_str())
    }

    /// Returns the fields for which an apply conflicted with other managers, in the server's order; empty if the
    /// request failed for another reason. See
    /// <https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts>.
    pub fn field_conflicts(&self) -> Vec<FieldConflict> {
        let causes = self.status().and_then(|status| status.details.as_ref()).map(|details| details.causes.as_slice());
        causes.unwrap_or_default().iter().filter_map(FieldConflict::read).collect()
    }

    /// Returns whether a retry of the same request may succeed: there was no response, or the status is 429 or 5xx.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Request { .. } => self.status().is_none_or(|status| matches!(status.code, 429 | 500..=599)),
            _ => false,
        }
    }

    /// Returns whether a write that failed with this error may have taken effect: there was no response, or the status
    /// is 5xx.
    pub(crate) fn is_uncertain(&self) -> bool {
        match self {
            Self::Request { .. } => self.status().is_none_or(|status| status.code >= 500),
            _ => false,
        }
    }

    /// Returns the delay that the API server requested before a retry, if any.
    pub fn retry_after(&self) -> Option<Duration> {
        self.status().and_then(asked_delay)
    }
}

/// A field for which an apply conflicted with another manager.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldConflict {
    /// The field path, such as `.spec.replicas`.
    pub field: String,
    /// The manager that owns the field, such as `kubectl-edit`.
    pub manager: String,
    /// True if the manager applied the field, and so owns it as long as its configuration contains it. Otherwise the
    /// field was set by an update, such as a manual edit or a write of an older controller.
    pub applied: bool,
}

impl FieldConflict {
    /// Returns whether the field was set by an update rather than an apply, and so is part of no applied configuration.
    pub fn is_by_hand(&self) -> bool {
        !self.applied
    }

    /// Parses the API server's message of a conflict, such as `conflict with "kubectl-edit" using apps/v1`. It contains
    /// the version only for managers that updated the field.
    fn read(cause: &StatusCause) -> Option<Self> {
        let owner = cause.message.strip_prefix("conflict with ").filter(|_| cause.reason == "FieldManagerConflict")?;
        let mut quoted = serde_json::Deserializer::from_str(owner).into_iter::<String>();
        let manager = quoted.next()?.ok()?;
        let applied = !owner[quoted.byte_offset()..].contains(" using ");
        Some(Self { field: cause.field.clone(), manager, applied })
    }
}

fn asked_delay(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

/// Formats kube's error: the API server's message if it responded, since kube appends the whole `Status` in debug form;
/// otherwise the error and its sources.
fn describe(error: &kube::Error) -> String {
    explain(error)
}

/// Returns the API server's `Status`, at any depth of the chain of sources.
fn answer<'a>(error: &'a (dyn error::Error + 'static)) -> Option<&'a Status> {
    let mut next = Some(error);
    while let Some(error) = next {
        let status = match (error.downcast_ref::<ClientError>(), error.downcast_ref::<kube::Error>()) {
            (Some(error), _) => error.status(),
            (_, Some(kube::Error::Api(status))) => Some(status.as_ref()),
            _ => None,
        };
        if status.is_some() {
            return status;
        }
        next = error.source();
    }
    None
}

/// Returns the delay that the API server requested before a retry, if any.
pub(crate) fn retry_after(error: &(dyn error::Error + 'static)) -> Option<Duration> {
    answer(error).and_then(asked_delay)
}

/// Returns whether the API server reported a conflict, which is expected in normal operation.
pub(crate) fn is_conflict(error: &(dyn error::Error + 'static)) -> bool {
    answer(error).is_some_and(Status::is_conflict)
}

/// Formats an error and its sources as one line, without repeating a message that contains its source's.
pub(crate) fn explain(error: &(dyn error::Error + 'static)) -> String {
    let mut message = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let (text, is_all) = match (error.downcast_ref::<kube::Error>(), error.is::<ClientError>()) {
            (Some(kube::Error::Api(status)), _) if !status.message.is_empty() => (one_line(&status.message), true),
            // Its message only says that an error occurred; the source has the cause.
            (Some(kube::Error::Service(_)), _) => (String::new(), false),
            (_, is_all) => (error.to_string(), is_all),
        };
        if !message.ends_with(&text) {
            let separator = if message.is_empty() { "" } else { ": " };
            message = format!("{message}{separator}{text}");
        }
        next = error.source().filter(|_| !is_all);
    }
    message
}

/// Formats a message as one line of at most 1000 characters. A proxy in front of the API server may respond with a
/// whole HTML page.
fn one_line(message: &str) -> String {
    const LONGEST: usize = 1000;
    if message.len() <= LONGEST && !message.contains('\n') {
        return message.into();
    }
    let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Error)]
    #[error("can't make the pod")]
    struct Outer(#[source] ClientError);

    fn refusal() -> Outer {
        let status = json!({"code": 429, "message": "too many requests", "details": {"retryAfterSeconds": 7}});
        let status: Status = serde_json::from_value(status).expect("a status");
        let source = Box::new(kube::Error::Api(status.boxed()));
        Outer(ClientError::Request { verb: "create", target: "pods a/b".into(), source })
    }

    #[test]
    fn retry_after_is_found_in_the_source_of_a_custom_error() {
        assert_eq!(retry_after(&refusal()), Some(Duration::from_secs(7)));
        assert!(refusal().0.is_transient() && !refusal().0.is_uncertain(), "the request was refused");
    }

    #[test]
    fn conflicts_name_field_and_manager() {
        let conflicts = |causes: serde_json::Value| {
            let status = json!({"code": 409, "reason": "Conflict", "details": {"causes": causes}});
            let status: Status = serde_json::from_value(status).expect("a status");
            let source = Box::new(kube::Error::Api(status.boxed()));
            ClientError::Request { verb: "apply", target: "deployments a/b".into(), source }.field_conflicts()
        };
        let cause =
            |message: &str| json!({"reason": "FieldManagerConflict", "field": ".spec.replicas", "message": message});
        for (message, manager, applied) in [
            (r#"conflict with "argo""#, "argo", true),
            (r#"conflict with "a \"b\" using c" with subresource "scale""#, "a \"b\" using c", true),
            (r#"conflict with "kubectl-edit" using apps/v1"#, "kubectl-edit", false),
            (r#"conflict with "hpa" with subresource "scale" using apps/v1 at 2020-01-30T10:02:00Z"#, "hpa", false),
        ] {
            let expected = FieldConflict { field: ".spec.replicas".into(), manager: manager.into(), applied };
            assert_eq!(conflicts(json!([cause(message)])), [expected], "{message}");
        }
        assert_eq!(conflicts(json!([{"reason": "FieldValueInvalid", "field": "spec", "message": "wrong"}])), []);
        assert_eq!(refusal().0.field_conflicts(), []);
    }

    #[test]
    fn an_error_without_a_response_shows_its_root_cause() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        #[derive(Debug, Error)]
        #[error("tcp connect error")]
        struct Connect(#[source] std::io::Error);
        let error = kube::Error::Service(Box::new(Connect(refused)));
        assert_eq!(explain(&error), "tcp connect error: connection refused");
        let error = ClientError::Request { verb: "get", target: "pods a/b".into(), source: Box::new(error) };
        assert_eq!(explain(&error), "get pods a/b: tcp connect error: connection refused");
    }

    #[test]
    fn a_long_message_is_shortened_to_one_line() {
        assert_eq!(one_line("<html>\n    <body>gone</body>\n"), "<html> <body>gone</body>");
        assert_eq!(one_line("pods is forbidden"), "pods is forbidden");
        assert_eq!(one_line(&"é".repeat(2000)).chars().count(), 1001);
    }

    #[test]
    fn an_error_contains_the_servers_message_once() {
        assert_eq!(explain(&refusal()), "can't make the pod: create pods a/b: too many requests");
        let status = Status {
            message: "leases \"a\" already exists".into(),
            reason: "AlreadyExists".into(),
            ..Status::default()
        };
        assert_eq!(explain(&kube::Error::Api(status.boxed())), "leases \"a\" already exists");
    }
}
