//! What can go wrong with a request, and how a caller asks about it.

use std::{error, time::Duration};

use kube::core::{Status, response::StatusCause};
use thiserror::Error;

use super::WorkspaceError;
use crate::owner::OwnerError;

/// A request that failed, or that was refused before it was sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The API server refused it, or no answer came. After a lost answer the write may have happened.
    #[error("{verb} {target}: {}", describe(source))]
    Request {
        /// The operation, such as `get`, `apply` or `deletecollection`.
        verb: &'static str,
        /// The resource and the object's key.
        target: String,
        /// What the client reported.
        #[source]
        source: Box<kube::Error>,
    },
    /// The reconciled object can't own the other: see [`OwnerError`].
    #[error(transparent)]
    Owner(Box<OwnerError>),
    /// What is remembered of the reconciled object can't be used: see [`WorkspaceError`].
    #[error(transparent)]
    Workspace(Box<WorkspaceError>),
    /// An object of that name exists, and isn't controlled by the reconciled one.
    #[error("{target} exists already, and is controlled by {controller}")]
    NameTaken {
        /// The object that was to be created.
        target: String,
        /// The kind and name of its controller, or `nobody`.
        controller: String,
    },
    /// The owner is being deleted, or is gone: no child is made for it.
    #[error("{owner} is being deleted: {target} is not created")]
    OwnerGone {
        /// The object that was to be created.
        target: String,
        /// The reconciled object.
        owner: String,
    },
    /// The kind lives in namespaces, and neither the key nor the client names one.
    #[error("{target} has no namespace: name one in its key or metadata, or with Client::namespace")]
    NoNamespace {
        /// What was asked for.
        target: String,
    },
    /// The client is bound to another namespace.
    #[error("{target} is out of reach: the client works in namespace {namespace} alone")]
    OtherNamespace {
        /// What was asked for.
        target: String,
        /// The client's namespace.
        namespace: String,
    },
    /// Only whole objects can be created or replaced.
    #[error("can't {verb} {target} by its metadata alone: patch or apply it")]
    MetadataOnly {
        /// What was asked for: `create` or `update`.
        verb: &'static str,
        /// The resource and the object's key.
        target: String,
    },
    /// A reconcile read a type from the cache that its controller doesn't declare.
    #[error(
        "controller {controller} doesn't declare {kind} as {view}: add .owns, .watches or .reads of that type to it"
    )]
    NotDeclared {
        /// The controller's name.
        controller: String,
        /// The kind, such as `PodSet.app.example.com`.
        kind: String,
        /// The Rust type that it was read as.
        view: &'static str,
    },
    /// The closure that was to change an object has given it another name or namespace.
    #[error("{target} was renamed by the closure that was to change it")]
    Renamed {
        /// The object as it was named.
        target: String,
    },
}

impl From<OwnerError> for ClientError {
    fn from(error: OwnerError) -> Self {
        Self::Owner(Box::new(error))
    }
}

impl ClientError {
    /// The API server's `Status`, if it answered with one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Request { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// The object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// An object of that name exists.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// The object has changed since it was read, or another manager owns a field.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(Status::is_conflict)
    }

    /// The version or the page that was asked for is too old.
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.code == 410)
    }

    /// The API server does not allow it: a role is missing, a quota is used up, or an admission plugin refused.
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(Status::is_forbidden)
    }

    /// The object's content is wrong.
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(Status::is_invalid)
    }

    /// The API server's words, if it answered that it will not do this: for want of a role or a quota, because the content
    /// is wrong, or the namespace is going. Trying again helps only once something else has changed.
    pub fn refusal(&self) -> Option<&str> {
        let status = self.status()?;
        (matches!(status.code, 400..=499) && !matches!(status.code, 409 | 429)).then_some(status.message.as_str())
    }

    /// The fields that an apply would have changed although others own them, in the server's order; empty if it failed for
    /// another reason. See <https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts>.
    pub fn field_conflicts(&self) -> Vec<FieldConflict> {
        let causes = self.status().and_then(|status| status.details.as_ref()).map(|details| details.causes.as_slice());
        causes.unwrap_or_default().iter().filter_map(FieldConflict::read).collect()
    }

    /// Whether another try of the same request may succeed: no answer, too many requests, or a fault of the server.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Request { .. } => self.status().is_none_or(|status| matches!(status.code, 429 | 500..=599)),
            _ => false,
        }
    }

    /// Whether a write that was answered so may have happened all the same.
    pub(crate) fn is_uncertain(&self) -> bool {
        match self {
            Self::Request { .. } => self.status().is_none_or(|status| status.code >= 500),
            _ => false,
        }
    }

    /// How long the API server asked to wait, if it did.
    pub fn retry_after(&self) -> Option<Duration> {
        self.status().and_then(asked_delay)
    }
}

/// A field that an apply would have changed although another manager owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldConflict {
    /// Its path, such as `.spec.replicas`.
    pub field: String,
    /// Who owns it, such as `kubectl-edit`.
    pub manager: String,
    /// Whether the manager applied it, and so claims it for as long as its configuration says so. Otherwise it was set by an
    /// update, as by hand or by an older controller.
    pub applied: bool,
}

impl FieldConflict {
    /// Whether the field was set by an update, which claims nothing for the future.
    pub fn is_by_hand(&self) -> bool {
        !self.applied
    }

    /// Reads what the API server writes of a conflict, such as `conflict with "kubectl-edit" using apps/v1`; only of an
    /// update it tells the version.
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

/// The API server's own words where it spoke, for kube's error adds the whole `Status` in debug form, which nobody reads;
/// otherwise all that is known of why it didn't.
fn describe(error: &kube::Error) -> String {
    explain(error)
}

/// The API server's answer, wherever in the chain of sources it is.
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

/// How long the API server asked to wait.
pub(crate) fn retry_after(error: &(dyn error::Error + 'static)) -> Option<Duration> {
    answer(error).and_then(asked_delay)
}

/// Whether the API server said that something has changed meanwhile: part of the day's work.
pub(crate) fn is_conflict(error: &(dyn error::Error + 'static)) -> bool {
    answer(error).is_some_and(Status::is_conflict)
}

/// The error and its sources as one line, each said once.
pub(crate) fn explain(error: &(dyn error::Error + 'static)) -> String {
    let mut message = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let (text, is_all) = match (error.downcast_ref::<kube::Error>(), error.is::<ClientError>()) {
            (Some(kube::Error::Api(status)), _) if !status.message.is_empty() => (one_line(&status.message), true),
            // It only says that there was an error.
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

/// An answer in one line, cut where it is long: what stands before an API server may answer with a whole page.
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
    fn row_4_retry_after_is_found_in_the_users_error() {
        assert_eq!(retry_after(&refusal()), Some(Duration::from_secs(7)));
        assert!(refusal().0.is_transient() && !refusal().0.is_uncertain(), "it was not even begun");
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
    fn an_error_without_an_answer_is_told_to_its_root() {
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
    fn a_page_is_told_in_one_line() {
        assert_eq!(one_line("<html>\n    <body>gone</body>\n"), "<html> <body>gone</body>");
        assert_eq!(one_line("pods is forbidden"), "pods is forbidden");
        assert_eq!(one_line(&"é".repeat(2000)).chars().count(), 1001);
    }

    #[test]
    fn an_error_is_told_in_the_servers_words_once() {
        assert_eq!(explain(&refusal()), "can't make the pod: create pods a/b: too many requests");
        let status = Status {
            message: "leases \"a\" already exists".into(),
            reason: "AlreadyExists".into(),
            ..Status::default()
        };
        assert_eq!(explain(&kube::Error::Api(status.boxed())), "leases \"a\" already exists");
    }
}
