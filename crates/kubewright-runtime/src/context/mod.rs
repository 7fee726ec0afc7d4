//! The context of a reconcile: reads, writes, time, randomness, events, cancellation.
//!
//! Reads come from the shared cache, which has the writes of this key's earlier reconciles; [`Live`] reads from the API
//! server. Each write is tracked until the cache shows it. Nothing is retried here: an error is returned to the
//! reconciler, whose error policy decides about a retry.

mod declared;
mod dynamic;
mod dynamic_watches;
mod live;
mod services;
mod undeclared;
mod workspace;
mod write;
mod write_tracker;

use std::{
    any::{TypeId, type_name},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::core::Selector;
use kubewright_apimachinery::random::Random;
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use self::{
    declared::{DeclareRead, DeclaredContext, DeclaredReads, Reads, ReconcileContext},
    dynamic::DynamicReader,
    live::Live,
    workspace::{OpenWorkspace, Workspace},
};
pub(crate) use self::{
    dynamic_watches::{DynamicWatches, Enqueue, Notify, WatchRequest},
    services::{LiveViews, Services},
    undeclared::UndeclaredReads,
    write_tracker::{Expectation, WriteTracker},
};
pub use crate::client::{LARGEST_WORKSPACE, WorkspaceError};
use crate::{
    cache::{Kind, Reader, Unsynced},
    client::ClientError,
    event::Event,
    object::{AnyObject, KindName, Object, ObjectKey},
};

/// The context of one reconcile. It lives as long as the reconcile.
pub struct Context<K: AnyObject> {
    services: Arc<Services>,
    /// The reconciled kind.
    of: K::DynamicType,
    key: ObjectKey,
    object: Option<Arc<K>>,
    views: LiveViews,
    tracker: WriteTracker,
    cancel: CancellationToken,
    /// The status that this run wrote last, and the object's version since.
    written_status: Mutex<Option<(Value, ObjectMeta)>>,
}

impl<K: AnyObject> fmt::Debug for Context<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<K: AnyObject> Context<K> {
    pub(crate) fn new(
        services: Arc<Services>,
        of: K::DynamicType,
        key: ObjectKey,
        views: LiveViews,
        cancel: CancellationToken,
        tracker: WriteTracker,
    ) -> Self {
        Self { services, of, key, object: None, views, tracker, cancel, written_status: Mutex::default() }
    }

    /// Returns the same context for this state of the object.
    pub(crate) fn with_object(self, object: Arc<K>) -> Self {
        Self { object: Some(object), ..self }
    }

    /// Returns the name of the controller.
    pub(crate) fn controller(&self) -> &str {
        &self.services.controller
    }

    /// Returns the namespace and name of the reconciled object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns the name of the object's cluster, for a controller [by
    /// cluster](crate::manager::Manager::controller_by_cluster); `None` in the manager's own.
    pub fn cluster(&self) -> Option<&str> {
        self.services.cluster.as_deref()
    }

    /// Returns the time of the wall clock, which may be virtual and may be changed.
    pub fn now(&self) -> Timestamp {
        self.services.clock.now()
    }

    /// Returns the monotonic time since an arbitrary fixed point, for durations.
    pub fn monotonic(&self) -> Duration {
        self.services.clock.monotonic()
    }

    /// Returns the source of randomness, which is seeded in simulations.
    pub fn random(&self) -> &Random {
        &self.services.random
    }

    /// Returns a token that is cancelled when the manager stops or the reconcile exceeds its timeout. A long reconcile
    /// should then return early; it is dropped at its next `await` after the grace period.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Returns the children of the reconciled object in the cache: the `T`s whose controller has its UID, ordered by
    /// key.
    ///
    /// Children of an earlier object of the same name are not included. Children that are being deleted are.
    ///
    /// # Errors
    /// [`ClientError::NotDeclared`], as [`Context::cached`].
    pub fn children<T: Object>(&self) -> Result<Vec<Arc<T>>, ClientError> {
        self.cached::<T>().map(|reader| self.children_in(&reader))
    }

    /// Returns an object from the cache; `None` if it doesn't exist.
    ///
    /// # Errors
    /// [`ClientError::NotDeclared`], as [`Context::cached`].
    pub fn get<T: Object>(&self, key: &ObjectKey) -> Result<Option<Arc<T>>, ClientError> {
        self.cached().map(|reader| reader.get(key))
    }

    /// Returns the objects in the cache whose labels match, ordered by key: those in the namespace of the reconciled
    /// object, or all if it or `T` is cluster-scoped.
    ///
    /// # Errors
    /// [`ClientError::NotDeclared`], as [`Context::cached`].
    pub fn list<T: Object>(&self, selector: &Selector) -> Result<Vec<Arc<T>>, ClientError> {
        let namespace = self.key.namespace().filter(|_| T::is_namespaced());
        self.cached().map(|reader| reader.list(namespace, selector))
    }

    /// Returns the cache of a kind, for reads by index and across namespaces. The reads are recorded in the trace.
    ///
    /// # Errors
    /// [`ClientError::NotDeclared`] if the controller doesn't declare `T` by `owns`, `watches` or `reads`.
    ///
    /// The manager can't check this when it starts, since only the compiler knows the types that a reconcile reads.
    /// With a [`DeclaredContext`] the compiler checks it. Without, after the first such read the check `declarations`
    /// of `/readyz` fails until the process ends, so that a rollout stops at the version with the mistake. Unlike in
    /// controller-runtime, a read doesn't start a watch: the generated role has no rule for the kind, and a run would
    /// mistake a cache that isn't filled for a cluster without objects. To watch a kind on demand use
    /// [`Context::watch`].
    pub fn cached<T: Object>(&self) -> Result<Reader<T>, ClientError> {
        self.declared(&KindName::of::<T>()).map(|reader| reader.noted(self.tracker.recorder()))
    }

    fn children_in<T: AnyObject>(&self, reader: &Reader<T>) -> Vec<Arc<T>> {
        let uid = self.object.as_ref().and_then(|object| object.meta().uid.as_deref());
        uid.map(|uid| reader.controlled_by(uid)).unwrap_or_default()
    }

    /// Watches a kind on demand and returns its cache: for kinds that are known only from an object, or that may not be
    /// installed.
    ///
    /// Each change of an object that passes, before or after it, enqueues this key. Until the kind has been listed this
    /// returns an error; the key is enqueued when the list arrives. The watch belongs to the key's latest run: a
    /// successful run that doesn't call this again releases it, and when no key uses the watch any more, it ends and
    /// its memory is freed (controller-runtime: `Controller.Watch` of a new source, `GetInformer`, `RemoveInformer`).
    ///
    /// The kind shares its watch and its copy with all other users, and the cache's options apply. A type that reads
    /// more fields than are cached costs another list. Writes are tracked as usual. The kind isn't in
    /// [`Manager::describe`](crate::manager::Manager::describe): add the rules for `list` and `watch` by
    /// [`Controller::rbac`](crate::controller::Controller::rbac). A missing kind doesn't affect readiness. Each change
    /// calls the filters of all keys that watch the kind. For a single object use [`Context::watch_object`], which
    /// costs nothing for others.
    ///
    /// ```
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
    /// # use kubewright_runtime::{client::ClientError, context::Context, action::Action};
    /// # async fn example(deployment: &Deployment, ctx: &Context<Deployment>) -> Result<Action, ClientError> {
    /// let name = deployment.metadata.name.clone();
    /// let Ok(secrets) = ctx.watch::<Secret>(move |secret| secret.metadata.name == name) else {
    ///     return Ok(Action::await_change()); // the key is enqueued when they are listed
    /// };
    /// let secret = secrets.get(ctx.key());
    /// # drop(secret);
    /// # Ok(Action::await_change())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsynced`] until the kind has been listed, with the last failure.
    pub fn watch<T: Object>(&self, passes: impl Fn(&T) -> bool + Send + Sync + 'static) -> Result<Reader<T>, Unsynced> {
        self.watch_as((&(), T::is_namespaced()), WatchRequest::Passing(Box::new(passes)))
    }

    /// Watches one object on demand, and returns it; `None` if it doesn't exist. See [`Context::watch`]. A change finds
    /// the keys to enqueue by the key of the object, so the cost doesn't depend on the number of watched objects.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{Pod, Secret};
    /// # use kubewright_runtime::{context::Context, action::Action};
    /// # fn example(pod: &Pod, ctx: &Context<Pod>) -> Action {
    /// let Ok(secret) = ctx.watch_object::<Secret>(&ctx.key().sibling("credentials")) else {
    ///     return Action::await_change(); // the key is enqueued when they are listed
    /// };
    /// # drop(secret);
    /// # Action::await_change()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Context::watch`].
    pub fn watch_object<T: Object>(&self, key: &ObjectKey) -> Result<Option<Arc<T>>, Unsynced> {
        let reader = self.watch_as::<T>((&(), T::is_namespaced()), WatchRequest::Object(key.clone()))?;
        Ok(reader.get(key))
    }

    fn watch_as<T: AnyObject>(
        &self,
        of: (&T::DynamicType, bool),
        request: WatchRequest<T>,
    ) -> Result<Reader<T>, Unsynced> {
        let kind = self.services.watches.watch(of, &self.key, request)?;
        Ok(self.reader_of(kind).noted(self.tracker.recorder()))
    }

    fn reader_of<T: AnyObject>(&self, kind: Arc<Kind>) -> Reader<T> {
        let live = self.views.get(kind.name()).cloned();
        Reader::new(kind, live).seen_by(self.tracker.recorder())
    }

    /// Returns the cache of a kind like [`Context::cached`], without a record in the trace.
    pub(crate) fn declared<T: AnyObject>(&self, name: &KindName) -> Result<Reader<T>, ClientError> {
        let kind = self.services.cache.find(name);
        let is_declared = |kind: &Arc<Kind>| self.services.types.contains(&(kind.name().clone(), TypeId::of::<T>()));
        kind.filter(is_declared).map(|kind| self.reader_of(kind)).ok_or_else(|| {
            let (controller, kind) = (self.services.controller.clone(), name.group_kind());
            self.services.undeclared.noted(ClientError::NotDeclared { controller, kind, view: type_name::<T>() })
        })
    }

    /// Returns a reader that reads from the API server.
    pub fn live(&self) -> Live {
        Live { client: self.client() }
    }

    /// Records an event about the reconciled object, as `kubectl describe` shows it. It returns at once; an event that
    /// can't be written is dropped.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kubewright_runtime::{context::Context, event::Event};
    /// # fn example(ctx: &Context<Pod>) {
    /// ctx.record(Event::normal("Scaled", "scaled from 2 to 3 replicas"));
    /// # }
    /// ```
    pub fn record(&self, event: Event) {
        self.record_about(&self.reference(), event);
    }

    /// Records an event about another object, such as the node on which a child runs, by its
    /// [`object_ref`](kube::Resource::object_ref). The event is written to that object's namespace.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{Node, Pod};
    /// # use kube::Resource;
    /// # use kubewright_runtime::{context::Context, event::Event};
    /// # fn example(ctx: &Context<Pod>, pod: &Pod, node: &Node) {
    /// let event = Event::warning("Cordoned", "too many of its pods failed").related(pod.object_ref(&()));
    /// ctx.record_about(&node.object_ref(&()), event);
    /// # }
    /// ```
    pub fn record_about(&self, object: &ObjectReference, event: Event) {
        self.tracker.recorder().event(&event);
        self.services.recorder.record(object, event);
    }

    fn reference(&self) -> ObjectReference {
        match &self.object {
            Some(object) => object.object_ref(&self.of),
            None => ObjectReference {
                api_version: Some(K::api_version(&self.of).into_owned()),
                kind: Some(K::kind(&self.of).into_owned()),
                name: Some(self.key.name().into()),
                namespace: self.key.namespace().map(Into::into),
                ..ObjectReference::default()
            },
        }
    }
}
