//! Actions: subresources that are handled outside of the server, such as `pods/log` by a node.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Response, request::Parts};
use kubewright_apimachinery::status::Status;
use serde_json::Value;

use crate::{auth::UserInfo, body::Body, registry::Resource, strconv::is_true};

/// A request for a subresource of an existing object.
#[derive(Debug)]
pub struct ActionRequest {
    /// The resource of the object.
    pub resource: Arc<Resource>,
    /// The object's namespace; empty for cluster-scoped resources.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The subresource, such as `log`, including the rest of the path, such as `proxy/a/b`.
    pub subresource: String,
    /// The parameters, in the order sent.
    pub query: Vec<(String, String)>,
    /// The object in its stored form.
    pub object: Arc<Value>,
    /// The user behind the request.
    pub user: Arc<UserInfo>,
    /// The method and headers. The extensions contain hyper's upgrade for protocols other than HTTP.
    pub parts: Parts,
    /// The body.
    pub body: Bytes,
}

impl ActionRequest {
    /// Returns the first value of a parameter. An empty value counts as absent.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns whether a parameter is set to a value that means true: everything but `false`, in any case, and `0`.
    pub fn flag(&self, name: &str) -> bool {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.is_some_and(|(_, value)| is_true(value))
    }
}

/// Handles a subresource. The response may be a stream, whose body is dropped when the client disconnects.
pub trait Action: Debug + Send + Sync + 'static {
    /// Handles one request. An error is sent as the response.
    fn call(&self, request: ActionRequest) -> BoxFuture<'static, Result<Response<Body>, Status>>;

    /// Returns whether the responses are byte streams, as those of `pods/log`. Clients can receive these over
    /// WebSocket. Defaults to false: an action that serves a protocol other than HTTP upgrades the connection itself.
    fn streams_bytes(&self) -> bool {
        false
    }
}

/// The attached actions by group, version, plural and subresource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Actions(BTreeMap<[String; 4], Arc<dyn Action>>);

impl Actions {
    pub(crate) fn insert(&mut self, key: [&str; 4], action: Arc<dyn Action>) {
        self.0.insert(key.map(str::to_owned), action);
    }

    /// Returns the action of a subresource, looked up by the first segment of its path.
    pub(crate) fn find(&self, resource: &Resource, subresource: &str) -> Option<Arc<dyn Action>> {
        let first = subresource.split('/').next().unwrap_or_default();
        let key = [&resource.group, &resource.version, &resource.plural, first].map(str::to_owned);
        self.0.get(&key).cloned()
    }
}
