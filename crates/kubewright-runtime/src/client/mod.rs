//! Requests to the API server, by kind and key: a thin layer over kube's client.
//!
//! Nothing here is cached, recorded or retried. A reconciler doesn't use it directly: [`crate::context::Context`] does,
//! which remembers what was written.

mod error;

use kube::core::Selector;
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, GetParams, ListParams, ObjectList, Patch, PatchParams, PostParams, Request},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use self::error::{ClientError, FieldConflict};
pub(crate) use self::error::{explain, is_conflict, retry_after};

use crate::object::{KindName, Object, ObjectKey};

/// How many objects a live list asks for at a time.
const PAGE: u32 = 500;

/// The answer to a delete.
#[derive(Debug)]
pub(crate) enum Deletion<K> {
    /// The object as it is now: it waits for its grace period or for finalizers, unless it is already gone.
    Object(Box<K>),
    /// The object is gone, or was so before.
    Done,
}

/// Typed requests under one field manager.
#[derive(Clone)]
pub(crate) struct ApiClient {
    client: Client,
    field_manager: String,
}

impl std::fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiClient").field("field_manager", &self.field_manager).finish_non_exhaustive()
    }
}

impl ApiClient {
    /// Requests through `client`, whose writes are owned by `field_manager`.
    pub(crate) fn new(client: Client, field_manager: &str) -> Self {
        Self { client, field_manager: field_manager.into() }
    }

    pub(crate) async fn get<K: Object>(&self, key: &ObjectKey) -> Result<Option<K>, ClientError> {
        let request = resources::<K>(key.namespace()).get(key.name(), &GetParams::default());
        match self.send("get", key, request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every object of a kind in a namespace, or everywhere, in the server's order, by pages.
    pub(crate) async fn list<K: Object>(
        &self,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<K>, ClientError> {
        self.list_as::<K, K>(namespace, selector).await
    }

    /// [`ApiClient::list`], with the objects decoded as something else.
    pub(crate) async fn list_as<K: Object, T: Clone + DeserializeOwned>(
        &self,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<T>, ClientError> {
        let mut params = ListParams::default().limit(PAGE);
        if !selector.selects_all() {
            params = params.labels_from(selector);
        }
        let place = ObjectKey::cluster(namespace.unwrap_or("in all namespaces"));
        let mut items = Vec::new();
        loop {
            let request = resources::<K>(namespace).list(&params);
            let page: ObjectList<T> = self.send_for::<K, _>("list", &place, request).await?;
            items.extend(page.items);
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(items);
            }
        }
    }

    pub(crate) async fn create<K: Object>(&self, object: &K) -> Result<K, ClientError> {
        let key = ObjectKey::of(object);
        let params = PostParams { dry_run: false, field_manager: Some(self.field_manager.clone()) };
        let body = encode("create", object)?;
        self.send("create", &key, resources::<K>(key.namespace()).create(&params, body)).await
    }

    /// Server-side apply of everything the object says.
    pub(crate) async fn apply<K: Object>(&self, object: &K, force: bool) -> Result<K, ClientError> {
        let mut object = object.clone();
        object.managed_fields_mut().clear();
        object.meta_mut().managed_fields = None;
        let params = PatchParams { force, field_manager: Some(self.field_manager.clone()), ..PatchParams::default() };
        self.patch_with("apply", &ObjectKey::of(&object), None, &params, &Patch::Apply(object)).await
    }

    /// A patch of the object, or of one of its subresources.
    pub(crate) async fn patch<K: Object, P: Serialize>(
        &self,
        key: &ObjectKey,
        subresource: Option<&str>,
        patch: &Patch<P>,
    ) -> Result<K, ClientError> {
        let params = PatchParams { field_manager: Some(self.field_manager.clone()), ..PatchParams::default() };
        self.patch_with("patch", key, subresource, &params, patch).await
    }

    async fn patch_with<K: Object, P: Serialize>(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        subresource: Option<&str>,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, ClientError> {
        let resources = resources::<K>(key.namespace());
        let request = match subresource {
            Some(subresource) => resources.patch_subresource(subresource, key.name(), params, patch),
            None => resources.patch(key.name(), params, patch),
        };
        self.send(verb, key, request).await
    }

    /// Deletes; an object that isn't there is [`Deletion::Done`].
    pub(crate) async fn delete<K: Object>(
        &self,
        key: &ObjectKey,
        params: &DeleteParams,
    ) -> Result<Deletion<K>, ClientError> {
        let request = resources::<K>(key.namespace()).delete(key.name(), params);
        let answer: Value = match self.send_for::<K, _>("delete", key, request).await {
            Ok(answer) => answer,
            Err(error) if error.is_not_found() => return Ok(Deletion::Done),
            Err(error) => return Err(error),
        };
        if answer.get("kind").and_then(Value::as_str) == Some("Status") {
            return Ok(Deletion::Done);
        }
        let object = serde_json::from_value(answer);
        object.map(Deletion::Object).map_err(|source| failed::<K>("delete", key, kube::Error::SerdeError(source)))
    }

    async fn send<K: Object>(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<K, ClientError> {
        self.send_for::<K, K>(verb, key, request).await
    }

    async fn send_for<K: Object, T: DeserializeOwned>(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, ClientError> {
        let request = request.map_err(|source| failed::<K>(verb, key, kube::Error::BuildRequest(source)))?;
        self.client.request(request).await.map_err(|source| failed::<K>(verb, key, source))
    }
}

fn resources<K: Object>(namespace: Option<&str>) -> Request {
    Request::new(K::url_path(&(), namespace.filter(|_| K::is_namespaced())))
}

fn failed<K: Object>(verb: &'static str, key: &ObjectKey, source: kube::Error) -> ClientError {
    ClientError::Request { verb, target: format!("{} {key}", KindName::of::<K>()), source: Box::new(source) }
}

fn encode<K: Object>(verb: &'static str, object: &K) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(object)
        .map_err(|source| failed::<K>(verb, &ObjectKey::of(object), kube::Error::SerdeError(source)))
}
