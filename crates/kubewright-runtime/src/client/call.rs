//! One request: what it does, and how it passes observers and interceptors.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use kubewright_apimachinery::description::Verb;
use serde::{Serialize, de::DeserializeOwned};
use tracing::Instrument;

use super::{Client, ClientError, refusal, transport::send};
use crate::object::{KindName, ObjectKey};

/// The operation of a request. Server-side apply has one of its own, while RBAC counts it as a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Reads one object.
    Get,
    /// Reads a page of objects.
    List,
    /// Creates an object, or posts to a subresource.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object by a patch.
    Patch,
    /// Creates or changes an object by server-side apply.
    Apply,
    /// Deletes one object.
    Delete,
    /// Deletes all objects that match a selector.
    DeleteCollection,
}

impl Operation {
    /// Its name, such as `deletecollection`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether it is a write.
    pub(crate) const fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List)
    }

    fn verb(self) -> Verb {
        match self {
            Self::Get => Verb::Get,
            Self::List => Verb::List,
            Self::Create => Verb::Create,
            Self::Update => Verb::Update,
            Self::Patch | Self::Apply => Verb::Patch,
            Self::Delete => Verb::Delete,
            Self::DeleteCollection => Verb::DeleteCollection,
        }
    }
}

/// A request, as interceptors and observers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub(super) operation: Operation,
    pub(super) kind: Arc<KindName>,
    /// For a list or a deletion of many only its namespace counts. The name may be a prefix and `*`, if the API server is to
    /// make one up.
    pub(super) key: ObjectKey,
    pub(super) subresource: Option<Arc<str>>,
    pub(super) dry_run: bool,
    /// The UID that the object must have.
    pub(super) uid: Option<String>,
    /// The version at which the caller has seen the object.
    pub(super) version: Option<u64>,
}

impl Call {
    /// The verb that RBAC requires for it. A server-side apply is a [`Verb::Patch`].
    pub fn verb(&self) -> Verb {
        self.operation.verb()
    }

    /// Whether it is a server-side apply.
    pub fn is_apply(&self) -> bool {
        self.operation == Operation::Apply
    }

    /// Whether it is a write. Dry runs count as writes too; see [`Call::is_dry_run`].
    pub fn is_write(&self) -> bool {
        self.operation.is_write()
    }

    pub(crate) fn operation(&self) -> Operation {
        self.operation
    }

    /// The kind it is about.
    pub fn kind(&self) -> &KindName {
        &self.kind
    }

    /// The namespace; absent for a cluster-scoped object, and for a list of all namespaces.
    pub fn namespace(&self) -> Option<&str> {
        self.key.namespace()
    }

    /// The object's name; absent for a list, for a deletion of many, and where the API server is to make one up.
    pub fn name(&self) -> Option<&str> {
        Some(self.key.name()).filter(|name| !self.is_about_many() && !name.is_empty() && !name.ends_with('*'))
    }

    /// The subresource, such as `status`.
    pub fn subresource(&self) -> Option<&str> {
        self.subresource.as_deref()
    }

    /// Whether nothing is written.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The UID that the object must have, if it must have one.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// The version at which the caller has seen the object, if it has.
    pub(crate) fn version(&self) -> Option<u64> {
        self.version
    }

    /// The object's key.
    pub(crate) fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Whether the API server will be different after it.
    pub(crate) fn changes_something(&self) -> bool {
        self.is_write() && !self.dry_run
    }

    fn is_about_many(&self) -> bool {
        matches!(self.operation, Operation::List | Operation::DeleteCollection)
    }

    /// What it is about, such as `pods/status default/web`.
    pub(super) fn target(&self) -> String {
        let part = self.subresource.as_ref().map(|subresource| format!("/{subresource}")).unwrap_or_default();
        let kind = &self.kind;
        match (self.is_about_many(), self.namespace()) {
            (true, Some(namespace)) => format!("{kind} in {namespace}"),
            (true, None) => format!("{kind} in all namespaces"),
            (false, _) => format!("{kind}{part} {}", self.key),
        }
    }

    pub(super) fn failed(&self, source: kube::Error) -> ClientError {
        ClientError::Request { verb: self.operation.as_str(), target: self.target(), source: Box::new(source) }
    }

    /// Reads the answer.
    pub(super) fn decode<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, ClientError> {
        kubewright_packed::from_text(&answer.text).map_err(|source| self.failed(kube::Error::SerdeError(source)))
    }
}

/// `create pods default/web`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation.as_str(), self.target())
    }
}

/// What a request that succeeded was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The HTTP status, such as 201.
    pub status: u16,
    /// The text of an object, a list or a `Status`.
    pub text: String,
}

/// What stands between the caller and the API server.
pub(super) type Hook = Arc<dyn Fn(Next) -> BoxFuture<'static, Result<Answer, ClientError>> + Send + Sync>;

/// A request that an [interceptor](Client::intercept) may look at, send, or answer itself.
pub struct Next {
    kube: kube::Client,
    /// The interceptors that have not seen it.
    hooks: Arc<[Hook]>,
    left: usize,
    call: Call,
    request: http::Request<Vec<u8>>,
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("call", &self.call).finish_non_exhaustive()
    }
}

impl Next {
    /// What the request does.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// What is sent: JSON, or nothing.
    pub fn body(&self) -> &[u8] {
        self.request.body()
    }

    /// Sends it on and gives back what was answered.
    ///
    /// # Errors
    /// When the API server, or an interceptor further on, refuses; or when no answer comes.
    pub async fn send(mut self) -> Result<Answer, ClientError> {
        match self.left.checked_sub(1).map(|last| (last, self.hooks[last].clone())) {
            Some((left, hook)) => {
                self.left = left;
                hook(self).await
            }
            None => send(&self.kube, self.request).await.map_err(|source| self.call.failed(source)),
        }
    }

    /// Answers in the API server's place, with an object.
    ///
    /// # Errors
    /// If it is no JSON.
    pub fn answer(&self, object: &impl Serialize) -> Result<Answer, ClientError> {
        let text = serde_json::to_string(object).map_err(|source| self.call.failed(kube::Error::SerdeError(source)))?;
        Ok(Answer { status: 200, text })
    }

    /// Refuses in the API server's place, with the code and reason of a `Status`, such as 409 and `Conflict`.
    ///
    /// # Errors
    /// Always.
    pub fn refuse(&self, code: u16, reason: &str, message: &str) -> Result<Answer, ClientError> {
        Err(self.call.failed(refusal(code, reason, message)))
    }
}

impl Client {
    /// Sends a request. All requests pass here: observers see them before they are sent and when they are answered, and
    /// interceptors in between.
    pub(super) async fn send(
        &self,
        call: &Call,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Answer, ClientError> {
        let request = request.map_err(|source| call.failed(kube::Error::BuildRequest(source)))?;
        let observed = self.observers.iter().map(|observer| observer.begin(call, &request)).collect::<Vec<_>>();
        let span = observed.iter().find_map(|observed| observed.span());
        let (kube, hooks, left) = (self.kube.clone(), self.hooks.clone(), self.hooks.len());
        let answer = Next { kube, hooks, left, call: call.clone(), request }.send();
        let answer = match span {
            Some(span) => answer.instrument(span).await,
            None => answer.await,
        };
        for observed in observed {
            observed.answered(call, &answer);
        }
        answer
    }
}
