//! A single request, and the chain of observers and interceptors that handles it.

use std::{cell::OnceCell, fmt, sync::Arc};

use futures::future::BoxFuture;
use kubewright_apimachinery::description::Verb;
use kubewright_packed::Json;
use serde::{Serialize, de::DeserializeOwned};
use tracing::Instrument;

use super::{Client, ClientError, identity::set_user_agent, refusal, transport::send};
use crate::object::{KindName, ObjectKey};

/// The operation of a request. Server-side apply is a separate operation here, although RBAC treats it as a patch.
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
    /// Patches an object.
    Patch,
    /// Creates or changes an object by server-side apply.
    Apply,
    /// Deletes one object.
    Delete,
    /// Deletes all objects that match a selector.
    DeleteCollection,
}

impl Operation {
    /// Returns the name, such as `deletecollection`.
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

    /// Returns whether the operation is a write.
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
    /// For a list or a collection delete, only the namespace is used. With `metadata.generateName` the name may be the
    /// prefix followed by `*`.
    pub(super) key: ObjectKey,
    pub(super) subresource: Option<Arc<str>>,
    pub(super) dry_run: bool,
    /// The UID precondition.
    pub(super) uid: Option<String>,
    /// The resource version at which the caller read the object.
    pub(super) version: Option<u64>,
}

impl Call {
    /// Returns the RBAC verb that the request needs. A server-side apply needs [`Verb::Patch`].
    pub fn verb(&self) -> Verb {
        self.operation.verb()
    }

    /// Returns whether the request is a server-side apply.
    pub fn is_apply(&self) -> bool {
        self.operation == Operation::Apply
    }

    /// Returns whether the request is a write. Dry runs count as writes too; see [`Call::is_dry_run`].
    pub fn is_write(&self) -> bool {
        self.operation.is_write()
    }

    pub(crate) fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the kind of the requested object.
    pub fn kind(&self) -> &KindName {
        &self.kind
    }

    /// Returns the namespace; `None` for a cluster-scoped object and for a list of all namespaces.
    pub fn namespace(&self) -> Option<&str> {
        self.key.namespace()
    }

    /// Returns the object's name; `None` for a list, for a collection delete, and if the API server generates the name.
    pub fn name(&self) -> Option<&str> {
        Some(self.key.name()).filter(|name| !self.is_about_many() && !name.is_empty() && !name.ends_with('*'))
    }

    /// The subresource, such as `status`.
    pub fn subresource(&self) -> Option<&str> {
        self.subresource.as_deref()
    }

    /// Returns whether the request is a dry run, which stores nothing.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Returns the UID precondition, if there is one.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Returns the resource version at which the caller read the object, if known.
    pub(crate) fn version(&self) -> Option<u64> {
        self.version
    }

    /// Returns the object's key.
    pub(crate) fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns whether the request changes stored state: a write that is not a dry run.
    pub(crate) fn changes_something(&self) -> bool {
        self.is_write() && !self.dry_run
    }

    fn is_about_many(&self) -> bool {
        matches!(self.operation, Operation::List | Operation::DeleteCollection)
    }

    /// Returns the resource and the object's key, such as `pods/status default/web`.
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

    /// Decodes a response.
    pub(super) fn decode<T: DeserializeOwned>(&self, answer: &ParsedResponse) -> Result<T, ClientError> {
        answer.read().map_err(|source| self.failed(kube::Error::SerdeError(source)))
    }
}

/// Formats the operation and its target, such as `create pods default/web`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation.as_str(), self.target())
    }
}

/// The response to a successful request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiResponse {
    /// The HTTP status, such as 201.
    pub status: u16,
    /// The body: an object, a list or a `Status` as JSON.
    pub text: String,
}

/// A response. Its body is parsed once, when it is first read.
#[derive(Debug)]
pub(crate) struct ParsedResponse {
    response: ApiResponse,
    /// Whether the body of an object is read without its managed fields.
    without_managed_fields: bool,
    /// `None` if it can't be parsed.
    body: OnceCell<Option<Json>>,
}

impl ParsedResponse {
    fn new(call: &Call, response: ApiResponse) -> Self {
        Self { response, without_managed_fields: call.is_write(), body: OnceCell::new() }
    }

    /// Returns the HTTP status.
    pub(crate) fn status(&self) -> u16 {
        self.response.status
    }

    /// Decodes the body. That of a write has no managed fields.
    ///
    /// # Errors
    /// If it isn't JSON, or that of a write isn't an object, or it doesn't match the type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match self.body.get_or_init(|| self.parse().ok()) {
            Some(body) => body.read(),
            None => self.parse()?.read(),
        }
    }

    fn parse(&self) -> Result<Json, serde_json::Error> {
        let text = &self.response.text;
        if self.without_managed_fields { Json::parse_without_managed_fields(text) } else { Json::parse(text) }
    }
}

/// An interceptor between the caller and the API server.
pub(super) type Interceptor = Arc<dyn Fn(Next) -> BoxFuture<'static, Result<ApiResponse, ClientError>> + Send + Sync>;

/// A request that an [interceptor](Client::intercept) may inspect, send, or answer itself.
pub struct Next {
    kube: kube::Client,
    /// All interceptors of the client, of which the first `left` have not seen the request.
    interceptors: Arc<[Interceptor]>,
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
    /// Returns the description of the request.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Returns the request body: JSON, or empty.
    pub fn body(&self) -> &[u8] {
        self.request.body()
    }

    /// Passes the request to the next interceptor or the API server, and returns the response.
    ///
    /// # Errors
    /// If the API server or a later interceptor refuses the request, or if there is no response.
    pub async fn send(mut self) -> Result<ApiResponse, ClientError> {
        match self.left.checked_sub(1).map(|last| (last, self.interceptors[last].clone())) {
            Some((left, interceptor)) => {
                self.left = left;
                interceptor(self).await
            }
            // Boxed, since the future of each request, and of each reconcile with one, would have room for it.
            None => Box::pin(send(&self.kube, self.request)).await.map_err(|source| self.call.failed(source)),
        }
    }

    /// Returns a response with this object and status 200, without sending the request.
    ///
    /// # Errors
    /// If the object can't be serialized to JSON.
    pub fn answer(&self, object: &impl Serialize) -> Result<ApiResponse, ClientError> {
        let text = serde_json::to_string(object).map_err(|source| self.call.failed(kube::Error::SerdeError(source)))?;
        Ok(ApiResponse { status: 200, text })
    }

    /// Refuses the request without sending it, with the code and reason of a `Status`, such as 409 and `Conflict`.
    ///
    /// # Errors
    /// Always.
    pub fn refuse(&self, code: u16, reason: &str, message: &str) -> Result<ApiResponse, ClientError> {
        Err(self.call.failed(refusal(code, reason, message)))
    }
}

impl Client {
    /// Sends a request. All requests of the client pass through this method. Observers are called before the request is
    /// sent and with its response; interceptors run in between.
    pub(super) async fn send(
        &self,
        call: &Call,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<ParsedResponse, ClientError> {
        let mut request = request.map_err(|source| call.failed(kube::Error::BuildRequest(source)))?;
        self.identify(call, &mut request)?;
        let observed = self.observers.iter().map(|observer| observer.begin(call, &request)).collect::<Vec<_>>();
        let span = observed.iter().find_map(|observed| observed.span());
        let (kube, interceptors, left) = (self.kube.clone(), self.interceptors.clone(), self.interceptors.len());
        let answer = Next { kube, interceptors, left, call: call.clone(), request }.send();
        let answer = match span {
            Some(span) => answer.instrument(span).await,
            None => answer.await,
        };
        let answer = answer.map(|response| ParsedResponse::new(call, response));
        for observed in observed {
            observed.answered(call, &answer);
        }
        answer
    }

    /// Adds the headers that say who sends the request.
    pub(super) fn identify(&self, call: &Call, request: &mut http::Request<Vec<u8>>) -> Result<(), ClientError> {
        let headers = request.headers_mut();
        if let Some(agent) = &self.agent {
            set_user_agent(headers, agent);
        }
        let written = self.impersonation.as_ref().map_or(Ok(()), |user| user.write(headers));
        written.map_err(|source| call.failed(kube::Error::HttpError(source)))
    }
}
