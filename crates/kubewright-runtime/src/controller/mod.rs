//! Controllers: the watches that enqueue keys, and the workers that reconcile them.
//!
//! [`Controller`] is the wiring, [`Reconciler`] the logic. Internally there are the [queue](crate::queue) of keys; the
//! read-your-writes barrier, which holds a key back until the cache has the key's own writes; the takeover, which does
//! the same for the writes of the replica that had the key before; and the loop that hands keys to a bounded number of
//! workers, isolates their panics and drains them on shutdown.

mod barrier;
mod channel;
mod concurrency_limit;
mod dispatch;
mod dynamic;
mod error;
mod finalizers;
mod keyed;
mod metrics;
mod outcome;
mod prepare;
mod reconciler;
mod run;
mod source;
mod takeover;
mod wiring;
mod worker;

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use self::{
    channel::RunSource,
    run::{Typed, Work},
    source::{Owners, Source, mapped_keys, ranked_keys},
};
pub use self::{
    channel::Waker,
    concurrency_limit::ConcurrencyLimit,
    dynamic::DynamicKind,
    error::ControllerError,
    finalizers::{Finalizer, Finalizers, FinalizersError},
    keyed::{Key, KeyContext, KeyController, KeyReconciler, KeyWaker},
    reconciler::Reconciler,
    source::Relation,
};
pub(crate) use self::{
    metrics::BarrierFamilies,
    prepare::{Environment, Prepared},
    source::Index,
};
pub use crate::limit::RateLimit;
use crate::{
    cache::Reader,
    client::Client,
    context::{DeclareRead, ReconcileContext},
    object::{AnyObject, KindName, KindScope, Object, ObjectKey},
    predicate::Predicate,
    queue::{Backoff, Debounce},
    rbac::{Permissions, PolicyRule},
};

/// Watches objects of kind `K` and runs a [`Reconciler`] for their keys.
///
/// ```
/// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Pod}};
/// # use kubewright_runtime::{context::Context, controller::{Controller, Reconciler}, action::Action};
/// # use kubewright_runtime::{object::ObjectKey, predicate::Predicate};
/// # struct Rollout;
/// # impl Reconciler<Deployment> for Rollout {
/// #     type Error = std::convert::Infallible;
/// #     async fn reconcile(&self, _: &Deployment, _: &Context<Deployment>) -> Result<Action, Self::Error> {
/// #         Ok(Action::await_change())
/// #     }
/// # }
/// let controller = Controller::<Deployment>::new(Rollout)
///     .predicate(Predicate::generation_changed())
///     .owns::<Pod>()
///     .watches(|config: &ConfigMap, deployments| {
///         let here = deployments.list(config.metadata.namespace.as_deref(), &Default::default());
///         here.iter().map(|deployment| ObjectKey::of(deployment.as_ref())).collect()
///     })
///     .concurrency(4);
/// ```
pub struct Controller<K: AnyObject> {
    /// The reconciled kind.
    kind: K::DynamicType,
    name: String,
    field_manager: Option<String>,
    client: Option<WrapClient>,
    concurrency: Option<usize>,
    concurrency_limit: Option<ConcurrencyLimit>,
    timeout: Option<Duration>,
    cache_sync_timeout: Option<Duration>,
    recovers: bool,
    priority: Option<Rank<K>>,
    backoff: Backoff,
    rate_limit: Option<RateLimit>,
    blocks_deletion: bool,
    debounce: Option<Debounce>,
    predicate: Predicate<K>,
    sources: Vec<Source>,
    outside: Vec<RunSource<K>>,
    work: Arc<dyn Work>,
    finalizer: Option<&'static str>,
    is_exclusive: bool,
    permissions: Permissions,
}

type WrapClient = Box<dyn FnOnce(Client) -> Client + Send>;
type Rank<K> = Box<dyn Fn(&K) -> i32 + Send + Sync>;

impl<K: AnyObject> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<K: AnyObject> DeclareRead for Controller<K> {
    fn declare_read<T: Object>(&mut self) {
        self.sources.push(Source::read::<T>(()));
    }
}

impl<K: Object> Controller<K> {
    /// A controller with the lower-case kind as its name, one worker, no timeout, and no predicate. A reconciler with a
    /// [`DeclaredContext`](crate::context::DeclaredContext) brings the declarations of what it reads.
    pub fn new<R: Reconciler<K, C>, C: ReconcileContext<K>>(reconciler: R) -> Self {
        Self::new_with(reconciler, ())
    }
}

impl<K: AnyObject> Controller<K> {
    /// [`Controller::new`] for a kind that may be known only at run time, as `Controller::<DynamicObject>` of an
    /// [`ApiResource`](kube::core::ApiResource).
    ///
    /// A kind that is known only at run time counts as namespaced, as in [`Controller::dynamic`]. The scope of its
    /// objects is that of the first one. If the kind is later defined again with another scope, its objects aren't
    /// reconciled: each is an error that says so, until the controller is [added again](crate::manager::Controllers).
    ///
    /// ```
    /// # use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    /// # use kubewright_runtime::{action::Action, client::ClientError, context::Context, controller::{Controller, Reconciler}};
    /// struct Widgets;
    ///
    /// impl Reconciler<DynamicObject> for Widgets {
    ///     type Error = ClientError;
    ///
    ///     async fn reconcile(&self, widget: &DynamicObject, ctx: &Context<DynamicObject>) -> Result<Action, ClientError> {
    ///         let colour = &widget.data["spec"]["colour"];
    ///         ctx.set_dynamic_status(serde_json::json!({ "painted": colour })).await?;
    ///         Ok(Action::await_change())
    ///     }
    /// }
    ///
    /// let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    /// let controller = Controller::<DynamicObject>::new_with(Widgets, widgets);
    /// ```
    pub fn new_with<R: Reconciler<K, C>, C: ReconcileContext<K>>(reconciler: R, kind: K::DynamicType) -> Self {
        let mut controller = Self {
            name: K::kind(&kind).to_lowercase(),
            field_manager: None,
            client: None,
            concurrency: None,
            concurrency_limit: None,
            timeout: None,
            cache_sync_timeout: None,
            recovers: true,
            priority: None,
            backoff: Backoff::default(),
            rate_limit: None,
            blocks_deletion: true,
            debounce: None,
            predicate: Predicate::always(),
            sources: Vec::new(),
            outside: Vec::new(),
            work: Arc::new(Typed::<K, R, C>::new(reconciler, kind.clone())),
            finalizer: R::FINALIZER,
            is_exclusive: true,
            permissions: Permissions::default(),
            kind,
        };
        C::declare(&mut controller);
        controller
    }

    /// Sets the name in logs, metrics and events, such as `podset`. It must be unique in a manager.
    pub fn name(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the field manager of the controller's writes, by default `<name>-controller`. A change of it in a later
    /// release leaves fields with the old manager.
    pub fn field_manager(self, name: &str) -> Self {
        Self { field_manager: Some(name.into()), ..self }
    }

    /// Wraps the client of all requests of the reconciles, for example for dry runs, strict field validation, or
    /// interception in a test.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube::api::ValidationDirective;
    /// # use kubewright_runtime::controller::{Controller, Reconciler};
    /// # fn example(reconciler: impl Reconciler<Pod>) -> Controller<Pod> {
    /// Controller::<Pod>::new(reconciler).client(|client| client.field_validation(ValidationDirective::Strict))
    /// # }
    /// ```
    pub fn client(self, wrap: impl FnOnce(Client) -> Client + Send + 'static) -> Self {
        Self { client: Some(Box::new(wrap)), ..self }
    }

    /// Filters the changes of the reconciled objects that enqueue them. By default all do, including changes of status
    /// and metadata. Children and watched objects have predicates of their own. A change must pass the predicates of
    /// all calls.
    pub fn predicate(self, predicate: Predicate<K>) -> Self {
        Self { predicate: self.predicate.and(predicate), ..self }
    }

    /// Caches objects of kind `T`, and enqueues the controlling owner (by owner reference) of each that changes.
    pub fn owns<T: Object>(self) -> Self {
        self.owns_when::<T>(Predicate::always())
    }

    /// [`Controller::owns`] for changes that pass a predicate.
    pub fn owns_when<T: Object>(self, predicate: Predicate<T>) -> Self {
        let source = Source::owned::<K, T>(self.kind.clone(), (), predicate, Owners::Controller);
        self.watch(source)
    }

    /// [`Controller::owns`] for all owners: each `K` among the owner references is enqueued, also if it doesn't control
    /// the child. [`Context::children`](crate::context::Context::children) finds the children that are controlled; the
    /// others are found by an [index](Controller::index) of owner UIDs.
    pub fn owns_for_every_owner<T: Object>(self) -> Self {
        self.owns_for_every_owner_when::<T>(Predicate::always())
    }

    /// [`Controller::owns_for_every_owner`] for changes that pass a predicate.
    pub fn owns_for_every_owner_when<T: Object>(self, predicate: Predicate<T>) -> Self {
        let source = Source::owned::<K, T>(self.kind.clone(), (), predicate, Owners::Every);
        self.watch(source)
    }

    /// Caches objects of kind `T`, and enqueues the keys that `mapper` returns for the old and the new state of each
    /// that changes. The mapper may read the cache of the reconciled kind. It must be fast, because it blocks further
    /// events of the kind.
    pub fn watches<T: Object>(self, mapper: impl Fn(&T, &Reader<K>) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        self.watches_when(Predicate::always(), mapper)
    }

    /// [`Controller::watches`] for changes that pass a predicate.
    pub fn watches_when<T: Object>(
        self,
        predicate: Predicate<T>,
        mapper: impl Fn(&T, &Reader<K>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let mapper = move |object: &T, known: &Reader<K>| mapped_keys(mapper(object, known));
        let source = Source::mapped::<K, T>(self.kind.clone(), (), predicate, mapper);
        self.watch(source)
    }

    /// [`Controller::watches`] with a mapper that also returns the priority of each key, in place of the one that
    /// [`Controller::priority`] describes.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use kubewright_runtime::{controller::Controller, object::ObjectKey, queue::{LOW_PRIORITY, NORMAL_PRIORITY}};
    /// # fn example(controller: Controller<ConfigMap>) -> Controller<ConfigMap> {
    /// controller.watches_with_priority(|secret: &Secret, _| {
    ///     let is_urgent = secret.type_.as_deref() == Some("kubernetes.io/tls");
    ///     vec![(ObjectKey::of(secret), if is_urgent { NORMAL_PRIORITY + 1 } else { LOW_PRIORITY })]
    /// })
    /// # }
    /// ```
    pub fn watches_with_priority<T: Object>(
        self,
        mapper: impl Fn(&T, &Reader<K>) -> Vec<(ObjectKey, i32)> + Send + Sync + 'static,
    ) -> Self {
        self.watches_with_priority_when(Predicate::always(), mapper)
    }

    /// [`Controller::watches_with_priority`] for changes that pass a predicate.
    pub fn watches_with_priority_when<T: Object>(
        self,
        predicate: Predicate<T>,
        mapper: impl Fn(&T, &Reader<K>) -> Vec<(ObjectKey, i32)> + Send + Sync + 'static,
    ) -> Self {
        let mapper = move |object: &T, known: &Reader<K>| ranked_keys(mapper(object, known));
        let source = Source::mapped::<K, T>(self.kind.clone(), (), predicate, mapper);
        self.watch(source)
    }

    /// Caches objects of kind `T`, so that a reconcile can read them. Their changes enqueue nothing.
    pub fn reads<T: Object>(self) -> Self {
        self.watch(Source::read::<T>(()))
    }

    /// Adds an index to the cache of kind `T` for [`Reader::indexed`]. `values` returns the values under which an
    /// object is found. The manager's controllers share indexes, so name them by content, such as `spec.nodeName`. Two
    /// indexes of the same name and kind are an error
    /// ([`ManagerError::SameIndex`](crate::manager::ManagerError::SameIndex)), unless both use the same function
    /// without captures.
    pub fn index<T: Object>(
        self,
        name: &'static str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.watch(Source::indexed::<T>((), name, values))
    }

    /// Reconciles the keys that are sent through a channel, by another task of the program or on behalf of another
    /// system (kube: `reconcile_on`, controller-runtime: `source.Channel`). It ends when all senders are dropped.
    ///
    /// Keys may be sent before the controller runs. On a replica that isn't the leader they wait in the channel; use
    /// `try_send` there, because a new leader reconciles every object anyway. Where replicas [divide the
    /// keys](crate::shard), a key is passed on to the replica that owns it.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kubewright_runtime::{controller::{Controller, Reconciler}, object::ObjectKey};
    /// # fn example(reconciler: impl Reconciler<Pod>) -> Controller<Pod> {
    /// let (sender, receiver) = tokio::sync::mpsc::channel(64);
    /// // Anywhere: sender.send(ObjectKey::namespaced("default", "web")).await
    /// # drop(sender);
    /// Controller::<Pod>::new(reconciler).reconcile_on(receiver)
    /// # }
    /// ```
    pub fn reconcile_on(self, keys: mpsc::Receiver<ObjectKey>) -> Self {
        self.outside(channel::channel(keys))
    }

    /// Reconciles the keys that a task wakes, for example one that reads a stream, polls another system, or waits for
    /// times (controller-runtime: `WatchesRawSource` of a `source.Func`). The task starts with the controller and is
    /// cancelled at its next `await` when the controller stops. It may end earlier.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kubewright_runtime::{controller::{Controller, Reconciler}, object::ObjectKey};
    /// # fn example(reconciler: impl Reconciler<Pod>) -> Controller<Pod> {
    /// Controller::<Pod>::new(reconciler).watches_raw_source(|waker| async move {
    ///     loop {
    ///         tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    ///         waker.wake(ObjectKey::namespaced("default", "hourly"));
    ///     }
    /// })
    /// # }
    /// ```
    pub fn watches_raw_source<F>(self, run: impl FnOnce(Waker<K>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.outside(channel::source(run))
    }

    /// Sets the number of keys that are reconciled at the same time, never one key twice; 0 counts as 1. The default is
    /// the [`Manager::group_kind_concurrency`](crate::manager::Manager::group_kind_concurrency) of the kind, or 1.
    pub fn concurrency(self, workers: usize) -> Self {
        Self { concurrency: Some(workers.max(1)), ..self }
    }

    /// Limits the number of concurrent reconciles of this controller and all others that share the limit, in addition
    /// to [`Controller::concurrency`].
    pub fn concurrency_limit(self, limit: &ConcurrencyLimit) -> Self {
        Self { concurrency_limit: Some(limit.clone()), ..self }
    }

    /// Sets the backoff of a key that failed, by default from 5 ms doubling to 1000 s, with jitter.
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// Limits the rate of retries of all keys together. There is no limit by default.
    pub fn rate_limit(self, limit: RateLimit) -> Self {
        Self { rate_limit: Some(limit), ..self }
    }

    /// Sets whether children from [`Context::create_child`](crate::context::Context::create_child), `apply_child` and
    /// the like have `blockOwnerDeletion: true` (the default). Without it, an owner that is deleted in the foreground
    /// doesn't wait for them, and the operator's role needs no right to the owner's `finalizers` on clusters that ask
    /// for it, such as OpenShift ([`owner::set_block_owner_deletion`](crate::owner::set_block_owner_deletion)).
    pub fn block_owner_deletion(self, block_owner_deletion: bool) -> Self {
        Self { blocks_deletion: block_owner_deletion, ..self }
    }

    /// Delays the reconcile of a key whose objects change until none has changed for `quiet`, but at most for `longest`
    /// after the first change (kube: `Config::debounce`, which has no upper limit). It is meant for objects that change
    /// in bursts, such as those that one command applies. By default there is no delay.
    ///
    /// Requeues, retries and the keys of a [`Waker`] are not delayed. A run for one of these includes the changes until
    /// then.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kubewright_runtime::controller::Controller;
    /// # fn example(controller: Controller<Pod>) -> Controller<Pod> {
    /// controller.debounce(Duration::from_secs(1), Duration::from_secs(10))
    /// # }
    /// ```
    pub fn debounce(self, quiet: Duration, longest: Duration) -> Self {
        Self { debounce: Some(Debounce { quiet, longest }).filter(|_| !quiet.is_zero()), ..self }
    }

    /// Sets the time after which the manager ends with [`ControllerError::NotSynced`] if one of the controller's kinds
    /// couldn't be listed. By default it waits without a limit, because a CRD may be installed after its operator
    /// (controller-runtime: two minutes). Meanwhile `/readyz` and, every two minutes, the log name the missing kinds.
    pub fn cache_sync_timeout(self, timeout: Duration) -> Self {
        Self { cache_sync_timeout: Some(timeout), ..self }
    }

    /// Sets whether a panic of the reconciler counts as an error and is retried (the default). Otherwise the manager
    /// ends with [`ControllerError::Panicked`] after the grace period (controller-runtime: `RecoverPanic`).
    pub fn recover_panic(self, recover_panic: bool) -> Self {
        Self { recovers: recover_panic, ..self }
    }

    /// Sets a function whose result for the cached object is added to the priority with which its key waits. Without it
    /// that is [`NORMAL_PRIORITY`](crate::queue::NORMAL_PRIORITY) after a change, and
    /// [`LOW_PRIORITY`](crate::queue::LOW_PRIORITY) after the first list or a resync. It is called for each event, so
    /// it must be fast. It doesn't change priorities from [`watches_with_priority`](Controller::watches_with_priority)
    /// and from [`Action::requeue_after_with_priority`](crate::action::Action::requeue_after_with_priority).
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kubewright_runtime::controller::Controller;
    /// # fn example(controller: Controller<Pod>) -> Controller<Pod> {
    /// controller.priority(|pod| pod.spec.as_ref().map_or(0, |spec| spec.priority.unwrap_or(0).clamp(-50, 50)))
    /// # }
    /// ```
    pub fn priority(self, priority: impl Fn(&K) -> i32 + Send + Sync + 'static) -> Self {
        Self { priority: Some(Box::new(priority)), ..self }
    }

    /// Changes the rules that the controller brings into the operator's role. The wiring implies most of them; see
    /// [`crate::rbac`]. It has no effect at run time.
    pub fn rbac(self, change: impl FnOnce(Permissions) -> Permissions) -> Self {
        Self { permissions: change(self.permissions), ..self }
    }

    /// Sets the time after which a reconcile counts as failed. [`Context::cancelled`] is then cancelled, and a second
    /// later the reconcile is dropped. There is no limit by default.
    ///
    /// [`Context::cancelled`]: crate::context::Context::cancelled
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets whether the controller runs only on the leader, or with [sharding](crate::shard) only for the keys of the
    /// replica (the default). Otherwise all replicas reconcile all keys at the same time. In any case caches and queue
    /// are filled from the start, so that a new leader begins at once (controller-runtime: `EnableWarmup`).
    pub fn needs_leader(self, needs_leader: bool) -> Self {
        Self { is_exclusive: needs_leader, ..self }
    }

    /// The value of [`Controller::needs_leader`].
    pub(crate) fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    fn watch(mut self, source: Source) -> Self {
        self.sources.push(source);
        self
    }

    fn outside(mut self, source: RunSource<K>) -> Self {
        self.outside.push(source);
        self
    }

    /// The indexes that it declares.
    pub(crate) fn indexes(&self) -> Vec<(KindName, Index)> {
        self.sources.iter().filter_map(|source| Some((source.kind.clone(), source.index?))).collect()
    }

    pub(crate) fn describe(&self) -> ControllerDescription {
        let (kind, is_namespaced) = (KindName::named::<K>(&self.kind), KindScope::of::<K>().is_namespaced());
        let own = Use { kind, relation: Relation::For, is_namespaced };
        let uses = self.sources.iter().map(|source| {
            let (kind, relation, is_namespaced) = (source.kind.clone(), source.relation, source.is_namespaced);
            Use { kind, relation, is_namespaced }
        });
        let finalizer = self.finalizer.map(Into::into);
        let mut uses: Vec<_> = [own].into_iter().chain(uses).collect();
        uses.sort();
        // A kind that is used otherwise is read in any case, and the relations are in the order of their weight.
        uses.dedup_by(|later, first| {
            later.kind == first.kind && [first.relation, Relation::Reads].contains(&later.relation)
        });
        let Permissions { allowed, omitted, workspace } = self.permissions.clone();
        ControllerDescription { name: self.name.clone(), uses, finalizer, workspace, allowed, omitted }
    }
}

/// The declarations of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControllerDescription {
    /// The name.
    pub name: String,
    /// The kinds that it uses, ordered by name.
    pub uses: Vec<Use>,
    /// The finalizer that it adds to its objects.
    pub finalizer: Option<String>,
    /// Whether it uses [workspaces](crate::context::Context::workspace), which are config maps.
    pub workspace: bool,
    /// The rules that it needs beyond those ([`Permissions::allow`]).
    pub allowed: Vec<PolicyRule>,
    /// The rules among those that it doesn't need ([`Permissions::omit`]).
    pub omitted: Vec<PolicyRule>,
}

/// A kind that a controller uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Use {
    /// The kind.
    pub kind: KindName,
    /// The declaration.
    pub relation: Relation,
    /// Whether the kind is namespaced. Kinds known only at run time count as namespaced.
    pub is_namespaced: bool,
}
