//! Controllers whose keys are no Kubernetes objects.

mod run;

use std::{error::Error, fmt, hash::Hash, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::run::{Connect, Source, Work, changes};
use super::{ControllerDescription, Relation, Use, run::Failure};
use crate::{
    action::{Action, Retry},
    client::Client,
    limit::RateLimit,
    object::{KindName, KindScope, Object},
    predicate::Predicate,
    queue::{Backoff, NORMAL_PRIORITY, SharedQueue, When},
    rbac::{Permissions, PolicyRule},
};

/// The key of a [`KeyController`]: any value that is ordered, hashed, cloned and displayed, such as a `String`, a
/// number or a struct. Logs show it by `Display`. Keep it small: the queue holds a copy of each that waits.
pub trait Key: Clone + Ord + Hash + fmt::Display + Send + Sync + 'static {}

impl<Q: Clone + Ord + Hash + fmt::Display + Send + Sync + 'static> Key for Q {}

/// The logic of a [`KeyController`]: makes the world match what one key stands for.
///
/// A reconcile may be cancelled at any `await` and is repeated after an error, so it must be idempotent. At most one
/// run per key is in progress at a time.
pub trait KeyReconciler<Q: Key>: Send + Sync + 'static {
    /// The error of a reconcile. [`error_policy`](Self::error_policy) decides how it is retried.
    type Error: Into<Box<dyn Error + Send + Sync>> + fmt::Debug + fmt::Display + Send + 'static;

    /// Reconciles a key.
    fn reconcile(&self, key: &Q, ctx: &KeyContext) -> impl Future<Output = Result<Action, Self::Error>> + Send;

    /// Decides how an error is retried. The default is the key's exponential backoff.
    fn error_policy(&self, error: &Self::Error) -> Retry {
        let _ = error;
        Retry::Backoff
    }
}

/// The context of one reconcile of a [`KeyController`].
///
/// It has no cached reads of its own: a reconciler keeps the handles of
/// [`Manager::cached`](crate::manager::Manager::cached) that it needs.
#[derive(Clone)]
pub struct KeyContext {
    client: Client,
    clock: SharedClock,
    random: Random,
    cancel: CancellationToken,
}

impl fmt::Debug for KeyContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyContext").finish_non_exhaustive()
    }
}

impl KeyContext {
    /// The client for all requests, with the controller's field manager. Nothing waits until the cache shows its
    /// writes: a reconcile that reads the cache may see a state before the key's last run, so it must read from the API
    /// server where that matters.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the time of the wall clock, which may be virtual and may be changed.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the monotonic time since an arbitrary fixed point, for durations.
    pub fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Returns the source of randomness, which is seeded in simulations.
    pub fn random(&self) -> &Random {
        &self.random
    }

    /// Returns a token that is cancelled when the manager stops or the reconcile exceeds its timeout, as
    /// [`Context::cancelled`](crate::context::Context::cancelled).
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }
}

/// Enqueues keys of one [`KeyController`]; see [`KeyController::watches_raw_source`]. Cheap to clone.
///
/// It never waits, and its memory is bounded by the number of different keys: a key that is enqueued several times
/// waits once.
pub struct KeyWaker<Q>(Arc<SharedQueue<Q>>);

impl<Q> Clone for KeyWaker<Q> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Q> fmt::Debug for KeyWaker<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyWaker").finish_non_exhaustive()
    }
}

impl<Q: Key> KeyWaker<Q> {
    /// Reconciles a key now.
    pub fn wake(&self, key: Q) {
        self.wake_with(key, NORMAL_PRIORITY);
    }

    /// Reconciles a key now, with a priority: higher ones come first.
    pub fn wake_with(&self, key: Q, priority: i32) {
        self.0.add(key, priority, When::Now);
    }

    /// Reconciles a key after this delay, unless it runs earlier.
    pub fn wake_after(&self, key: Q, delay: Duration) {
        self.0.add(key, NORMAL_PRIORITY, When::After(delay));
    }
}

/// Runs a [`KeyReconciler`] for keys that are no Kubernetes objects: the tenants of a database, the zones of a DNS
/// server, the nodes of a cloud (controller-runtime: `TypedController` with another type of requests).
/// [`Manager::key_controller`](crate::manager::Manager::key_controller) adds it.
///
/// Keys come from tasks of the program and from changes of Kubernetes objects that map to them. Each has its backoff,
/// and the queue, metrics and logs are those of a [`Controller`](super::Controller). What needs an object is missing:
/// no reconcile waits for the cache to show earlier writes, and there are no traces, no finalizers and no events of its
/// own ([`Manager::recorder`](crate::manager::Manager::recorder) records them about any object). Nor are keys listed
/// anywhere: after a start and on a new leader, the sources have to send all keys again. With [sharding](crate::shard)
/// a manager refuses such a controller unless each replica may reconcile all keys ([`KeyController::needs_leader`]).
///
/// ```
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::Namespace;
/// # use kube::ResourceExt;
/// # use kubewright_runtime::{action::Action, controller::{KeyContext, KeyController, KeyReconciler}, manager::Manager};
/// # #[derive(Debug, thiserror::Error)] #[error("the database is away")] struct Away;
/// /// Keeps a database schema for each tenant.
/// struct Schemas;
///
/// impl KeyReconciler<String> for Schemas {
///     type Error = Away;
///
///     async fn reconcile(&self, tenant: &String, ctx: &KeyContext) -> Result<Action, Away> {
///         // create or update the schema of the tenant …
///         # let _ = (tenant, ctx);
///         Ok(Action::requeue_after(Duration::from_secs(3600)))
///     }
/// }
///
/// # fn example(manager: Manager) -> Manager {
/// let schemas = KeyController::new("schemas", Schemas)
///     .watches(|namespace: &Namespace| namespace.labels().get("tenant").cloned().into_iter().collect())
///     .concurrency(4);
/// manager.key_controller(schemas)
/// # }
/// ```
pub struct KeyController<Q> {
    name: String,
    field_manager: Option<String>,
    concurrency: usize,
    timeout: Option<Duration>,
    backoff: Backoff,
    rate_limit: Option<RateLimit>,
    is_exclusive: bool,
    permissions: Permissions,
    uses: Vec<Use>,
    connects: Vec<Connect<Q>>,
    sources: Vec<Source<Q>>,
    work: Arc<Work<Q>>,
}

impl<Q> fmt::Debug for KeyController<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyController").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<Q: Key> KeyController<Q> {
    /// A controller with one worker and no timeout. The name appears in logs, metrics and the `User-Agent`, and must be
    /// unique in a manager.
    pub fn new<R: KeyReconciler<Q>>(name: &str, reconciler: R) -> Self {
        let reconciler = Arc::new(reconciler);
        let work = move |key: Q, ctx: KeyContext| -> BoxFuture<'static, Result<Action, Failure>> {
            let reconciler = reconciler.clone();
            async move {
                reconciler.reconcile(&key, &ctx).await.map_err(|error| {
                    let retry = reconciler.error_policy(&error);
                    let error: Box<dyn Error + Send + Sync> = error.into();
                    Failure::new(error.as_ref(), retry)
                })
            }
            .boxed()
        };
        Self {
            name: name.into(),
            field_manager: None,
            concurrency: 1,
            timeout: None,
            backoff: Backoff::default(),
            rate_limit: None,
            is_exclusive: true,
            permissions: Permissions::default(),
            uses: Vec::new(),
            connects: Vec::new(),
            sources: Vec::new(),
            work: Arc::new(work),
        }
    }

    /// Caches objects of kind `T`, and enqueues the keys that `mapper` returns for the old and the new state of each
    /// that changes. The first list comes behind other changes. The mapper must be fast, because it blocks further
    /// events of the kind.
    pub fn watches<T: Object>(self, mapper: impl Fn(&T) -> Vec<Q> + Send + Sync + 'static) -> Self {
        self.watches_when(Predicate::always(), mapper)
    }

    /// [`KeyController::watches`] for changes that pass a predicate.
    pub fn watches_when<T: Object>(
        mut self,
        predicate: Predicate<T>,
        mapper: impl Fn(&T) -> Vec<Q> + Send + Sync + 'static,
    ) -> Self {
        let (kind, is_namespaced) = (KindName::of::<T>(), KindScope::of::<T>().is_namespaced());
        self.uses.push(Use { kind, relation: Relation::Watches, is_namespaced });
        self.connects.push(changes(predicate, mapper));
        self
    }

    /// Reconciles the keys that are sent through a channel. It ends when all senders are dropped. On a replica that
    /// isn't the leader keys wait in the channel.
    pub fn reconcile_on(self, mut keys: mpsc::Receiver<Q>) -> Self {
        self.watches_raw_source(|waker| async move {
            while let Some(key) = keys.recv().await {
                waker.wake(key);
            }
        })
    }

    /// Reconciles the keys that a task wakes. The task starts with the controller, on the leader only if the controller
    /// [needs one](KeyController::needs_leader), and is cancelled at its next `await` when the controller stops. It may
    /// end earlier.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use kubewright_runtime::controller::{KeyController, KeyReconciler};
    /// # fn example(reconciler: impl KeyReconciler<u32>) -> KeyController<u32> {
    /// KeyController::new("zones", reconciler).watches_raw_source(|waker| async move {
    ///     loop {
    ///         [1, 2, 3].into_iter().for_each(|zone| waker.wake(zone));
    ///         tokio::time::sleep(Duration::from_secs(600)).await;
    ///     }
    /// })
    /// # }
    /// ```
    pub fn watches_raw_source<F>(mut self, run: impl FnOnce(KeyWaker<Q>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.sources.push(Box::new(move |waker| run(waker).boxed()));
        self
    }

    /// Sets the number of keys that are reconciled at the same time, never one key twice; 0 counts as 1, the default.
    pub fn concurrency(self, workers: usize) -> Self {
        Self { concurrency: workers.max(1), ..self }
    }

    /// Sets the backoff of a key that failed, by default from 5 ms doubling to 1000 s, with jitter.
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// Limits the rate of retries of all keys together. There is no limit by default.
    pub fn rate_limit(self, limit: RateLimit) -> Self {
        Self { rate_limit: Some(limit), ..self }
    }

    /// Sets the time after which a reconcile counts as failed, as [`Controller::timeout`](super::Controller::timeout).
    /// There is no limit by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets the field manager of the controller's writes, by default `<name>-controller`.
    pub fn field_manager(self, name: &str) -> Self {
        Self { field_manager: Some(name.into()), ..self }
    }

    /// Sets whether the controller runs only on the leader (the default), or all replicas reconcile all keys at the
    /// same time.
    pub fn needs_leader(self, needs_leader: bool) -> Self {
        Self { is_exclusive: needs_leader, ..self }
    }

    /// Adds a rule to the operator's role, for the requests of the reconciles. Those of the watched kinds are there. It
    /// has no effect at run time.
    pub fn policy_rule(self, rule: PolicyRule) -> Self {
        Self { permissions: self.permissions.allow(rule), ..self }
    }

    /// The value of [`KeyController::needs_leader`].
    pub(crate) fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    pub(crate) fn describe(&self) -> ControllerDescription {
        let Permissions { allowed, omitted, workspace } = self.permissions.clone();
        let (name, mut uses) = (self.name.clone(), self.uses.clone());
        uses.sort();
        uses.dedup();
        ControllerDescription { name, uses, finalizer: None, workspace, allowed, omitted }
    }
}
