//! The client of the built-in controllers, for objects of any kind.

use std::{fmt, sync::Arc};

use http::{Method, Request};
use kube::{Client, core::response::StatusCause};
use kubewright_apiserver::registry::Resource;
use serde_json::{Value, json};

/// The API path of an object, or of a collection if the name is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectPath {
    /// The group; empty for the core group.
    pub(crate) group: Arc<str>,
    /// The version.
    pub(crate) version: Arc<str>,
    /// The plural name of the resource.
    pub(crate) plural: Arc<str>,
    /// The namespace of a namespaced object.
    pub(crate) namespace: Option<String>,
    /// The name.
    pub(crate) name: String,
}

impl ObjectPath {
    /// Returns the path of an object of a resource.
    pub(crate) fn of(resource: &Resource, namespace: Option<&str>, name: &str) -> Self {
        Self {
            group: resource.group.clone(),
            version: resource.version.clone(),
            plural: resource.plural.clone(),
            namespace: namespace.filter(|_| resource.namespaced).map(Into::into),
            name: name.into(),
        }
    }

    /// Returns the path of an object of the core group.
    pub(crate) fn core(plural: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            group: "".into(),
            version: "v1".into(),
            plural: plural.into(),
            namespace: namespace.map(Into::into),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectPath {
    /// Formats the path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.group {
            "" => write!(f, "/api/{}", self.version)?,
            group => write!(f, "/apis/{group}/{}", self.version)?,
        }
        if let Some(namespace) = &self.namespace {
            write!(f, "/namespaces/{namespace}")?;
        }
        write!(f, "/{}", self.plural)?;
        if !self.name.is_empty() {
            write!(f, "/{}", self.name)?;
        }
        Ok(())
    }
}

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions<'a> {
    /// The UID that the object must have.
    pub(crate) uid: Option<&'a str>,
    /// The resource version that the object must have.
    pub(crate) version: Option<&'a str>,
    /// The propagation policy.
    pub(crate) propagation: Option<&'a str>,
    /// The grace period in seconds.
    pub(crate) grace: Option<i64>,
}

/// A client for objects as JSON values.
#[derive(Clone)]
pub(crate) struct ObjectClient(Client);

impl ObjectClient {
    /// Creates a client that sends its requests through `client`.
    pub(crate) fn new(client: Client) -> Self {
        Self(client)
    }

    /// Reads an object; `None` if it doesn't exist.
    pub(crate) async fn get(&self, address: &ObjectPath) -> Result<Option<Value>, kube::Error> {
        match self.send(Method::GET, address.to_string(), "application/json", None).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the JSON document at a path.
    pub(crate) async fn read(&self, path: &str) -> Result<Value, kube::Error> {
        self.send(Method::GET, path.to_owned(), "application/json", None).await
    }

    /// Reads the text at a path.
    pub(crate) async fn read_text(&self, path: &str) -> Result<String, kube::Error> {
        self.0.request_text(Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?).await
    }

    /// Creates an object in a collection, or posts to a subresource of an object.
    pub(crate) async fn create(
        &self,
        address: &ObjectPath,
        subresource: &str,
        body: &Value,
    ) -> Result<Value, kube::Error> {
        self.send(Method::POST, format!("{address}{subresource}"), "application/json", Some(body)).await
    }

    /// Replaces an object, or a subresource of it.
    pub(crate) async fn replace(
        &self,
        address: &ObjectPath,
        subresource: &str,
        body: &Value,
    ) -> Result<Value, kube::Error> {
        self.send(Method::PUT, format!("{address}{subresource}"), "application/json", Some(body)).await
    }

    /// Merges a patch into an object, or into a subresource of it.
    pub(crate) async fn merge(
        &self,
        address: &ObjectPath,
        subresource: &str,
        patch: &Value,
    ) -> Result<Value, kube::Error> {
        self.send(Method::PATCH, format!("{address}{subresource}"), "application/merge-patch+json", Some(patch)).await
    }

    /// Applies a configuration of an object, or of a subresource of it, with force, as a field manager.
    pub(crate) async fn apply(
        &self,
        address: &ObjectPath,
        subresource: &str,
        manager: &str,
        config: &Value,
    ) -> Result<Value, kube::Error> {
        let path = format!("{address}{subresource}?fieldManager={manager}&force=true");
        self.send(Method::PATCH, path, "application/apply-patch+yaml", Some(config)).await
    }

    /// Deletes an object, or the whole collection if the name is empty.
    pub(crate) async fn delete(&self, address: &ObjectPath, how: &DeleteOptions<'_>) -> Result<(), kube::Error> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        let preconditions = [("uid", how.uid), ("resourceVersion", how.version)];
        for (name, value) in preconditions.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            options["preconditions"][name] = json!(value);
        }
        if let Some(propagation) = how.propagation {
            options["propagationPolicy"] = json!(propagation);
        }
        if let Some(grace) = how.grace {
            options["gracePeriodSeconds"] = json!(grace);
        }
        self.send(Method::DELETE, address.to_string(), "application/json", Some(&options)).await.map(drop)
    }

    async fn send(
        &self,
        method: Method,
        path: String,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, kube::Error> {
        let body = body.map(serde_json::to_vec).transpose().map_err(kube::Error::SerdeError)?.unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(body)
            .map_err(kube::Error::HttpError)?;
        self.0.request(request).await
    }
}

/// Returns the HTTP status code of the server's answer.
fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Returns whether the object doesn't exist.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    code(error) == Some(404)
}

/// Returns whether the object can't be created because its namespace is being deleted. The error has the cause
/// `NamespaceTerminating`.
pub(crate) fn is_in_terminating_namespace(error: &kube::Error) -> bool {
    code(error) == Some(403) && causes(error).any(|cause| cause.reason == "NamespaceTerminating")
}

/// Returns whether the object has changed meanwhile, already exists, or has been replaced by another one of that name.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    let is_replaced = || causes(error).any(|cause| cause.field == "metadata.uid");
    code(error) == Some(409) || code(error) == Some(422) && is_replaced()
}

/// Returns the causes in the server's answer.
fn causes(error: &kube::Error) -> impl Iterator<Item = &StatusCause> {
    let details = match error {
        kube::Error::Api(status) => status.details.as_ref(),
        _ => None,
    };
    details.into_iter().flat_map(|details| &details.causes)
}
