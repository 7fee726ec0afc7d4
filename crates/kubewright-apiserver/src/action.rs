//! Actions: subresources that are answered by someone else than the pipeline, such as the node's `pods/log`.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Response, request::Parts};
use kubewright_apimachinery::status::Status;
use serde_json::Value;

use crate::{auth::UserInfo, body::Body, registry::Resource};

/// A request for a subresource of an object that exists.
#[derive(Debug)]
pub struct ActionRequest {
    /// The object's kind.
    pub resource: Arc<Resource>,
    /// The object's namespace; empty for kinds without.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The subresource, such as `log`; with what follows it in the path, such as `proxy/a/b`.
    pub subresource: String,
    /// The parameters, in the order sent.
    pub query: Vec<(String, String)>,
    /// The object, in its stored form.
    pub object: Arc<Value>,
    /// Who asks.
    pub user: UserInfo,
    /// The method, the headers, and in the extensions hyper's upgrade for protocols beyond HTTP.
    pub parts: Parts,
    /// The body.
    pub body: Bytes,
}

impl ActionRequest {
    /// The first value of a parameter; an empty one counts as absent.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Whether a parameter is set and neither `false` nor `0`.
    pub fn flag(&self, name: &str) -> bool {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.is_some_and(|(_, value)| !matches!(value.as_str(), "false" | "0"))
    }
}

/// Answers a subresource. The answer may stream; when the reader goes away, its body is dropped.
pub trait Action: Debug + Send + Sync + 'static {
    /// Answers one request. An error is sent as it is.
    fn call(&self, request: ActionRequest) -> BoxFuture<'static, Result<Response<Body>, Status>>;
}

/// The attached actions by group, version, plural and subresource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Actions(BTreeMap<[String; 4], Arc<dyn Action>>);

impl Actions {
    pub(crate) fn insert(&mut self, place: [&str; 4], action: Arc<dyn Action>) {
        self.0.insert(place.map(str::to_owned), action);
    }

    /// The action for a subresource; what follows the first `/` of its path is the action's own business.
    pub(crate) fn find(&self, resource: &Resource, subresource: &str) -> Option<Arc<dyn Action>> {
        let first = subresource.split('/').next().unwrap_or_default();
        let place = [&resource.group, &resource.version, &resource.plural, first].map(str::to_owned);
        self.0.get(&place).cloned()
    }
}
