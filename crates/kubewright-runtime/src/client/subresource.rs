//! Requests for subresources.

use std::{fmt, sync::Arc};

use kube::api::Patch;
use serde::{Serialize, de::DeserializeOwned};

use super::{AnyObject, Call, ClientError, KindClient, Operation};
use crate::object::ObjectKey;

/// Requests for a subresource of one kind, from [`KindClient::subresource`] or [`KindClient::status`].
///
/// The caller chooses the request and response types, which depend on the subresource: the object itself for `status`,
/// a `Scale` for `scale`, an `Eviction` and a `Status` for `eviction`.
///
/// ```no_run
/// # use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v1::Scale, policy::v1::Eviction, core::v1::Pod};
/// # use kube::{api::Patch, core::Status};
/// # use kubewright_runtime::{client::{Client, ClientError}, object::ObjectKey};
/// # async fn example(client: Client, web: &ObjectKey, pod: &ObjectKey) -> Result<(), ClientError> {
/// let scale = client.kind::<Deployment>().subresource("scale");
/// let patch = Patch::Merge(serde_json::json!({"spec": {"replicas": 3}}));
/// let now: Scale = scale.patch(web, &patch).await?;
///
/// let eviction = Eviction::default();
/// let _: Status = client.kind::<Pod>().subresource("eviction").create(pod, &eviction).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SubresourceClient<K: AnyObject> {
    kind: KindClient<K>,
    name: Arc<str>,
}

impl<K: AnyObject> fmt::Debug for SubresourceClient<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubresourceClient").field("kind", &self.kind).field("name", &self.name).finish()
    }
}

impl<K: AnyObject> SubresourceClient<K> {
    pub(super) fn new(kind: KindClient<K>, name: &str) -> Self {
        Self { kind, name: name.into() }
    }

    /// Gets the subresource of an object; `None` if the object or the subresource doesn't exist.
    ///
    /// # Errors
    /// See [`KindClient`].
    pub async fn get<T: DeserializeOwned>(&self, key: &ObjectKey) -> Result<Option<T>, ClientError> {
        let call = self.call(Operation::Get, key)?;
        let request = self.kind.requests(&call).get_subresource(&self.name, call.key().name());
        match self.kind.client().send(&call, request).await {
            Ok(answer) => call.decode(&answer).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a subresource, such as an eviction, a binding or a token request.
    ///
    /// # Errors
    /// See [`KindClient`].
    pub async fn create<T: DeserializeOwned>(&self, key: &ObjectKey, sent: &impl Serialize) -> Result<T, ClientError> {
        let call = self.call(Operation::Create, key)?;
        let body = encode(&call, sent)?;
        let client = self.kind.client();
        let requests = self.kind.requests(&call);
        let request = requests.create_subresource(&self.name, call.key().name(), &client.post_params(), body);
        call.decode(&client.send(&call, client.validated(request)).await?)
    }

    /// Replaces the subresource, if its `metadata.resourceVersion` is still current. For `status`, which takes the
    /// whole object, only the status is written.
    ///
    /// # Errors
    /// See [`KindClient`]; 409 (`Conflict`) if the object has changed since it was read.
    pub async fn update<T: Serialize + DeserializeOwned>(&self, key: &ObjectKey, part: &T) -> Result<T, ClientError> {
        let call = self.call(Operation::Update, key)?;
        let body = encode(&call, part)?;
        let client = self.kind.client();
        let requests = self.kind.requests(&call);
        let request = requests.replace_subresource(&self.name, call.key().name(), &client.post_params(), body);
        call.decode(&client.send(&call, client.validated(request)).await?)
    }

    /// Patches the subresource.
    ///
    /// # Errors
    /// See [`KindClient`]; 404 if the object doesn't exist.
    pub async fn patch<T: DeserializeOwned, P: Serialize>(
        &self,
        key: &ObjectKey,
        patch: &Patch<P>,
    ) -> Result<T, ClientError> {
        let call = self.call(Operation::Patch, key)?;
        let client = self.kind.client();
        let requests = self.kind.requests(&call);
        let params = client.patch_params(false);
        let request = requests.patch_subresource(&self.name, call.key().name(), &params, patch);
        call.decode(&client.send(&call, request).await?)
    }

    /// Applies the subresource; see [`KindClient::apply`]. `force` takes ownership of fields that other managers own.
    ///
    /// # Errors
    /// See [`KindClient`]; 409 (`Conflict`) if another manager owns a field and `force` is not set.
    pub async fn apply<T: DeserializeOwned>(
        &self,
        key: &ObjectKey,
        part: &impl Serialize,
        force: bool,
    ) -> Result<T, ClientError> {
        let call = self.call(Operation::Apply, key)?;
        let body = encode(&call, part)?;
        let request = self.kind.apply_request(&call, force, body);
        call.decode(&self.kind.client().send(&call, request).await?)
    }

    fn call(&self, operation: Operation, key: &ObjectKey) -> Result<Call, ClientError> {
        let call = self.kind.call(operation, key)?;
        Ok(Call { subresource: Some(self.name.clone()), ..call })
    }
}

fn encode(call: &Call, part: &impl Serialize) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(part).map_err(|source| call.failed(kube::Error::SerdeError(source)))
}
