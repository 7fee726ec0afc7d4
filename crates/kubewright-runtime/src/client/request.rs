//! Builders of apply and delete requests.

use std::{fmt, future::IntoFuture, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::{
    Resource,
    api::{DeleteParams, Patch, Preconditions, PropagationPolicy, Request},
};

use super::{AnyObject, Call, Client, ClientError, KindClient, Operation, kind::key_of};
use crate::object::version_of;

/// A server-side apply; `await` it to send it. See [`KindClient::apply`].
#[must_use = "nothing is sent until it is awaited"]
pub struct Apply<K: AnyObject> {
    kind: KindClient<K>,
    object: Result<K, ClientError>,
    force: bool,
}

impl<K: AnyObject> fmt::Debug for Apply<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apply").field("object", &self.object).field("force", &self.force).finish_non_exhaustive()
    }
}

impl<K: AnyObject> Apply<K> {
    pub(crate) fn new(kind: KindClient<K>, object: Result<K, ClientError>) -> Self {
        Self { kind, object, force: false }
    }

    /// Takes ownership of fields that other managers own.
    pub fn force(self) -> Self {
        Self { force: true, ..self }
    }

    async fn send(self) -> Result<K, ClientError> {
        let Self { kind, object, force } = self;
        let mut object = object?;
        object.meta_mut().managed_fields = None;
        let call = kind.call(Operation::Apply, &key_of(&object))?;
        let body = kind.encode(&call, &object)?;
        let request = kind.apply_request(&call, force, body);
        kind.answer(&call, request).await
    }
}

impl<K: AnyObject> IntoFuture for Apply<K> {
    type Output = Result<K, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// A deletion; `await` it to send it. See [`KindClient::delete`].
#[derive(Debug)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Delete {
    client: Client,
    call: Result<(Request, Call), ClientError>,
    params: DeleteParams,
    /// The resource version at which the object was read.
    version: Option<u64>,
}

impl Delete {
    pub(super) fn new(client: Client, call: Result<(Request, Call), ClientError>) -> Self {
        Self { client, call, params: DeleteParams::default(), version: None }
    }

    /// Deletes the object at once and its dependents afterwards.
    pub fn background(self) -> Self {
        self.propagation(PropagationPolicy::Background)
    }

    /// Deletes the object after its dependents.
    pub fn foreground(self) -> Self {
        self.propagation(PropagationPolicy::Foreground)
    }

    /// Keeps the dependents.
    pub fn orphan(self) -> Self {
        self.propagation(PropagationPolicy::Orphan)
    }

    /// Sets the grace period of a pod, in whole seconds.
    pub fn grace_period(mut self, period: Duration) -> Self {
        self.params.grace_period_seconds = Some(u32::try_from(period.as_secs()).unwrap_or(u32::MAX));
        self
    }

    /// Deletes the object only if it still has the UID and resource version of `object`. If `object` lacks one of them,
    /// that precondition is not set.
    pub fn only(mut self, object: &impl Resource) -> Self {
        let meta = object.meta();
        let (resource_version, uid) = (meta.resource_version.clone(), meta.uid.clone());
        self.version = version_of(object);
        self.params.preconditions = Some(Preconditions { resource_version, uid });
        self
    }

    /// Deletes the object even if it has changed since it was read. The UID stays a precondition.
    pub fn any_version(mut self) -> Self {
        if let Some(preconditions) = &mut self.params.preconditions {
            preconditions.resource_version = None;
        }
        self
    }

    fn propagation(mut self, policy: PropagationPolicy) -> Self {
        self.params.propagation_policy = Some(policy);
        self
    }

    async fn send(self) -> Result<(), ClientError> {
        let Self { client, call, params, version } = self;
        let (requests, call) = call?;
        let params = DeleteParams { dry_run: call.is_dry_run(), ..params };
        let uid = params.preconditions.as_ref().and_then(|preconditions| preconditions.uid.clone());
        let call = Call { uid, version, ..call };
        match client.send(&call, requests.delete(call.key().name(), &params)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

impl IntoFuture for Delete {
    type Output = Result<(), ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

impl<K: AnyObject> KindClient<K> {
    /// Returns an apply request with an encoded body. kube's method would encode the object a second time.
    pub(super) fn apply_request(
        &self,
        call: &Call,
        force: bool,
        body: Vec<u8>,
    ) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
        let params = self.client().patch_params(force);
        let patch = Patch::Apply(());
        let request = match call.subresource() {
            Some(part) => self.requests(call).patch_subresource(part, call.key().name(), &params, &patch),
            None => self.requests(call).patch(call.key().name(), &params, &patch),
        };
        request.map(|request| request.map(|_| body))
    }
}
