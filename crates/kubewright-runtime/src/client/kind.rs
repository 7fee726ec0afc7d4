//! Requests for the objects of one kind.

use std::{any::TypeId, fmt, sync::Arc};

use http::{
    header::{ACCEPT, HeaderValue},
    uri::InvalidUri,
};
use kube::{
    api::{ApiResource, DeleteParams, GetParams, ListParams, ObjectList, Patch, PatchParams, PostParams, Request},
    core::{DynamicObject, PartialObjectMeta, request::Error as BuildError},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{AnyObject, Apply, Call, Client, ClientError, Delete, Namespace, Operation, SubresourceClient};
use crate::object::{KindName, KindScope, ObjectKey};

/// The default page size of lists.
const PAGE: u32 = 500;

/// Requests for the objects of one kind, from [`Client::kind`], [`Client::metadata`] or [`Client::dynamic`]. Cheap to
/// clone.
///
/// A method fails if the API server refuses the request or doesn't respond. A write without a response may have taken
/// effect; [`ClientError`] distinguishes the two. Nothing is retried.
///
/// Objects that writes return have no `metadata.managedFields`, as those of the cache: of many objects they are half
/// of the response. [`KindClient::get`] returns them.
#[derive(Clone)]
pub struct KindClient<K: AnyObject> {
    client: Client,
    kind: K::DynamicType,
    name: Arc<KindName>,
}

impl<K: AnyObject> fmt::Debug for KindClient<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindClient").field("kind", &self.name).field("client", &self.client).finish()
    }
}

impl<K: AnyObject> KindClient<K> {
    pub(super) fn new(client: Client, kind: K::DynamicType) -> Self {
        let name = Arc::new(KindName {
            group: K::group(&kind).into_owned(),
            version: K::version(&kind).into_owned(),
            kind: K::kind(&kind).into_owned(),
            plural: K::plural(&kind).into_owned(),
        });
        Self { client, kind, name }
    }

    pub(super) fn name(&self) -> &KindName {
        &self.name
    }

    /// Gets an object; `None` if it doesn't exist.
    ///
    /// # Errors
    /// See [`KindClient`].
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<K>, ClientError> {
        let call = self.call(Operation::Get, key)?;
        let request = self.requests(&call).get(call.key().name(), &GetParams::default());
        match self.answer(&call, request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists the objects that match the selectors in `params`, in the client's namespace or in all namespaces. It
    /// requests pages of `params.limit` objects, by default 500. If the continue token expires, it lists again without
    /// pages.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube::api::ListParams;
    /// # use kubewright_runtime::client::{Client, ClientError};
    /// # async fn example(client: Client) -> Result<(), ClientError> {
    /// let running = ListParams::default().labels("app=web").fields("status.phase=Running");
    /// for pod in client.namespace("default").kind::<Pod>().list(&running).await? {
    ///     println!("{}", pod.metadata.name.unwrap_or_default());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`KindClient`].
    pub async fn list(&self, params: &ListParams) -> Result<Vec<K>, ClientError> {
        let call = self.call_many(Operation::List);
        let list = self.pages(&call, ListParams { limit: params.limit.or(Some(PAGE)), ..params.clone() }).await?;
        Ok(list.items)
    }

    /// Lists one page: at most `params.limit` objects after `params.continue_token`, which is in the metadata of the
    /// previous page.
    ///
    /// # Errors
    /// See [`KindClient`]; 410 if the token has expired.
    pub async fn list_page(&self, params: &ListParams) -> Result<ObjectList<K>, ClientError> {
        self.page(&self.call_many(Operation::List), params).await
    }

    /// Creates an object and returns it as stored. With `metadata.generateName` the API server generates the name.
    ///
    /// # Errors
    /// See [`KindClient`]; 409 (`AlreadyExists`) if the name is taken.
    pub async fn create(&self, object: &K) -> Result<K, ClientError> {
        let call = self.call_whole(Operation::Create, object)?;
        let body = self.encode(&call, object)?;
        let request = self.requests(&call).create(&self.client.post_params(), body);
        self.answer(&call, self.client.validated(request)).await
    }

    /// Replaces an object if its `metadata.resourceVersion` is still current, and returns it as stored.
    ///
    /// Fields that `K` doesn't know are lost; a patch or an apply keeps them.
    ///
    /// # Errors
    /// See [`KindClient`]; 409 (`Conflict`) if the object has changed since it was read. Read it again and repeat the
    /// change.
    pub async fn update(&self, object: &K) -> Result<K, ClientError> {
        let call = self.call_whole(Operation::Update, object)?;
        let body = self.encode(&call, object)?;
        let request = self.requests(&call).replace(call.key().name(), &self.client.post_params(), body);
        self.answer(&call, self.client.validated(request)).await
    }

    /// Patches an object (merge, strategic merge or JSON patch) and returns it as stored. The patch applies to any
    /// version of the object, unless it contains a `metadata.resourceVersion` or `uid`.
    ///
    /// # Errors
    /// See [`KindClient`]; 404 if the object doesn't exist; 415 for a strategic merge patch of a custom kind.
    pub async fn patch<P: Serialize>(&self, key: &ObjectKey, patch: &Patch<P>) -> Result<K, ClientError> {
        let call = self.call(Operation::Patch, key)?;
        let request = self.requests(&call).patch(call.key().name(), &self.client.patch_params(false), patch);
        self.answer(&call, request).await
    }

    /// Applies an object server-side: sets its fields, removes fields that an earlier apply of the same field owner set
    /// and this one omits, and creates the object if it doesn't exist. See
    /// <https://kubernetes.io/docs/reference/using-api/server-side-apply/>.
    ///
    /// A field that another manager owns with a different value is a conflict, unless [`Apply::force`] takes ownership.
    pub fn apply(&self, object: &K) -> Apply<K> {
        Apply::new(self.clone(), Ok(object.clone()))
    }

    /// Deletes an object, at any version unless [`Delete`] requires one. It is not an error if the object doesn't
    /// exist.
    pub fn delete(&self, key: &ObjectKey) -> Delete {
        let call = self.call(Operation::Delete, key).map(|call| (self.requests(&call), call));
        Delete::new(self.client.clone(), call)
    }

    /// Deletes the objects that match the selectors in `params`, in the client's namespace.
    ///
    /// # Errors
    /// See [`KindClient`]; [`ClientError::NoNamespace`] without a namespace, since the API server deletes the objects
    /// of one namespace per request.
    pub async fn delete_collection(&self, how: &DeleteParams, params: &ListParams) -> Result<(), ClientError> {
        let call = self.call_many(Operation::DeleteCollection);
        if KindScope::of::<K>() == KindScope::Namespaced && call.namespace().is_none() {
            return Err(ClientError::NoNamespace { target: call.target() });
        }
        let how = DeleteParams { dry_run: how.dry_run || call.is_dry_run(), ..how.clone() };
        let call = Call { dry_run: how.dry_run, ..call };
        let request = self.requests(&call).delete_collection(&how, params);
        self.client.send(&call, request).await.map(drop)
    }

    /// Returns the client of the `status` subresource.
    pub fn status(&self) -> SubresourceClient<K> {
        self.subresource("status")
    }

    /// Returns the client of a subresource, such as `scale`, `eviction`, `token` or `status`.
    pub fn subresource(&self, name: &str) -> SubresourceClient<K> {
        SubresourceClient::new(self.clone(), name)
    }
}

/// Building blocks of the other files of this module.
impl<K: AnyObject> KindClient<K> {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns a request for one object, after applying the client's namespace to the key.
    pub(super) fn call(&self, operation: Operation, key: &ObjectKey) -> Result<Call, ClientError> {
        let dry_run = self.client.dry_run && operation.is_write();
        let call = |key| Call {
            operation,
            kind: self.name.clone(),
            key,
            subresource: None,
            dry_run,
            uid: None,
            version: None,
        };
        let refused = |key: &ObjectKey| call(key.clone()).target();
        let scope = KindScope::of::<K>();
        let in_namespace = |namespace: &str| ObjectKey::namespaced(namespace, key.name());
        let key = match (&self.client.namespace, key.namespace()) {
            _ if scope == KindScope::Cluster => ObjectKey::cluster(key.name()),
            (Namespace::Only(only), Some(namespace)) if **only != *namespace => {
                return Err(ClientError::OtherNamespace { target: refused(key), namespace: only.to_string() });
            }
            (_, Some(_)) => key.clone(),
            (Namespace::Only(namespace), None) => in_namespace(namespace),
            (Namespace::Usual(namespace), None) if scope == KindScope::Namespaced => in_namespace(namespace),
            (_, None) if scope == KindScope::Namespaced => {
                return Err(ClientError::NoNamespace { target: refused(key) });
            }
            (_, None) => key.clone(),
        };
        Ok(call(key))
    }

    /// Returns a request for several objects.
    fn call_many(&self, operation: Operation) -> Call {
        let namespace = match &self.client.namespace {
            Namespace::Only(namespace) | Namespace::Usual(namespace) if KindScope::of::<K>() != KindScope::Cluster => {
                Some(&**namespace)
            }
            _ => None,
        };
        self.call_many_in(operation, namespace)
    }

    fn call_many_in(&self, operation: Operation, namespace: Option<&str>) -> Call {
        let key = namespace.map_or_else(|| ObjectKey::cluster(""), |namespace| ObjectKey::namespaced(namespace, ""));
        let dry_run = self.client.dry_run && operation.is_write();
        Call { operation, kind: self.name.clone(), key, subresource: None, dry_run, uid: None, version: None }
    }

    /// Returns a request that sends the whole object.
    fn call_whole(&self, operation: Operation, object: &K) -> Result<Call, ClientError> {
        let call = self.call(operation, &key_of(object))?;
        if K::metadata_api() {
            return Err(ClientError::MetadataOnly { verb: operation.as_str(), target: call.target() });
        }
        Ok(call)
    }

    pub(super) fn requests(&self, call: &Call) -> Request {
        Request::new(K::url_path(&self.kind, call.namespace().filter(|_| KindScope::of::<K>() != KindScope::Cluster)))
    }

    /// Encodes an object as JSON. For dynamic kinds and metadata it sets `apiVersion` and `kind`, which may be missing
    /// or those of another type.
    pub(super) fn encode(&self, call: &Call, object: &K) -> Result<Vec<u8>, ClientError> {
        let failed = |source| call.failed(kube::Error::SerdeError(source));
        if TypeId::of::<K::DynamicType>() == TypeId::of::<()>() && !K::metadata_api() {
            return serde_json::to_vec(object).map_err(failed);
        }
        let mut value = serde_json::to_value(object).map_err(failed)?;
        if let Value::Object(fields) = &mut value {
            let api_version = K::api_version(&self.kind).into_owned();
            fields.insert("apiVersion".into(), api_version.into());
            fields.insert("kind".into(), self.name.kind.clone().into());
        }
        serde_json::to_vec(&value).map_err(failed)
    }

    /// Sends a request and decodes the response as an object of the kind.
    pub(super) async fn answer(
        &self,
        call: &Call,
        request: Result<http::Request<Vec<u8>>, BuildError>,
    ) -> Result<K, ClientError> {
        let answer = self.client.send(call, in_form::<K>(call, request)).await?;
        call.decode(&answer)
    }

    pub(super) async fn page<T: Clone + DeserializeOwned>(
        &self,
        call: &Call,
        params: &ListParams,
    ) -> Result<ObjectList<T>, ClientError> {
        let request = self.requests(call).list(params);
        let answer = self.client.send(call, in_form::<K>(call, request)).await?;
        call.decode(&answer)
    }

    /// Returns all pages as one list, with the objects decoded as `T`.
    async fn pages<T: Clone + DeserializeOwned>(
        &self,
        call: &Call,
        params: ListParams,
    ) -> Result<ObjectList<T>, ClientError> {
        let mut params = params;
        let mut items = Vec::new();
        loop {
            let mut page: ObjectList<T> = match self.page(call, &params).await {
                // The continue token has expired, so start over without pages.
                Err(error) if error.is_expired() && params.continue_token.is_some() => {
                    (params.continue_token, params.limit) = (None, None);
                    items.clear();
                    continue;
                }
                page => page?,
            };
            items.append(&mut page.items);
            params.continue_token = page.metadata.continue_.take().filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(ObjectList { items, ..page });
            }
        }
    }
}

impl Client {
    /// Lists all objects of a kind that match `params`, decoded as `T`, in `namespace` or in all namespaces. It ignores
    /// the client's namespace.
    pub(crate) async fn list_as<T: Clone + DeserializeOwned>(
        &self,
        kind: &KindName,
        namespace: Option<&str>,
        params: ListParams,
    ) -> Result<ObjectList<T>, ClientError> {
        self.list_of::<DynamicObject, T>(kind, namespace, params).await
    }

    /// Like [`Client::list_as`], but requests only the metadata.
    pub(crate) async fn list_metadata_as<T: Clone + DeserializeOwned>(
        &self,
        kind: &KindName,
        namespace: Option<&str>,
        params: ListParams,
    ) -> Result<ObjectList<T>, ClientError> {
        self.list_of::<PartialObjectMeta<DynamicObject>, T>(kind, namespace, params).await
    }

    async fn list_of<K: AnyObject<DynamicType = ApiResource>, T: Clone + DeserializeOwned>(
        &self,
        kind: &KindName,
        namespace: Option<&str>,
        params: ListParams,
    ) -> Result<ObjectList<T>, ClientError> {
        let kind = self.kind_with::<K>(kind.api_resource());
        let call = kind.call_many_in(Operation::List, namespace);
        kind.pages(&call, ListParams { limit: Some(PAGE), ..params }).await
    }

    pub(super) fn post_params(&self) -> PostParams {
        PostParams { dry_run: self.dry_run, field_manager: self.owner() }
    }

    pub(super) fn patch_params(&self, force: bool) -> PatchParams {
        let (field_manager, field_validation) = (self.owner(), self.validation.clone());
        PatchParams { dry_run: self.dry_run, force, field_manager, field_validation }
    }

    /// Adds the `fieldValidation` parameter, which kube's `PostParams` lack.
    pub(super) fn validated(
        &self,
        request: Result<http::Request<Vec<u8>>, BuildError>,
    ) -> Result<http::Request<Vec<u8>>, BuildError> {
        let (mut parts, body) = request?.into_parts();
        if let Some(directive) = &self.validation {
            let uri = format!("{}&fieldValidation={}", parts.uri, directive.as_str());
            parts.uri = uri.parse().map_err(|error: InvalidUri| BuildError::BuildRequest(error.into()))?;
        }
        Ok(http::Request::from_parts(parts, body))
    }
}

/// Sets the `Accept` header for a metadata-only response, if `K` is a metadata type.
fn in_form<K: AnyObject>(
    call: &Call,
    request: Result<http::Request<Vec<u8>>, BuildError>,
) -> Result<http::Request<Vec<u8>>, BuildError> {
    let mut request = request?;
    let form = match call.operation() {
        Operation::List => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        _ => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    };
    if K::metadata_api() {
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(form));
    }
    Ok(request)
}

/// Returns the object's key. A name that the API server generates is shown as its prefix and `*`.
pub(super) fn key_of<K: AnyObject>(object: &K) -> ObjectKey {
    let key = ObjectKey::of(object);
    match &object.meta().generate_name {
        Some(prefix) if key.name().is_empty() => key.sibling(&format!("{prefix}*")),
        _ => key,
    }
}
