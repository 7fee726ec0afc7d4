//! The manager: the client, cache, clock and source of randomness shared by all controllers, and their lifecycle.
//!
//! As in controller-runtime, it starts the HTTP servers, the webhooks, the caches, the tasks that run on every replica
//! and, with leader election when it becomes the leader, the remaining tasks. It stops them in reverse order. Replicas
//! that don't lead also fill their caches and queues, so that they can take over at once.

mod clusters;
mod controllers;
mod describe;
mod error;
mod features;
mod handles;
mod kubeconfig_folder;
mod kubeconfig_secrets;
mod labelled_namespaces;
mod lifecycle;
mod requests;
mod start;
mod webhooks;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::IntoFuture,
    mem,
    time::Duration,
};

use axum::routing::MethodRouter;
use clap::Parser;
use kube::{Client, CustomResourceExt};
use kubewright_apimachinery::{
    clock::{SharedClock, SystemClock},
    random::Random,
};
use tokio_util::sync::CancellationToken;
use tracing::{Span, info};

use self::{
    clusters::Fleet,
    controllers::Additions,
    describe::DeclaredVersion,
    handles::Handles,
    lifecycle::{LeaseHold, Lifecycle},
    requests::Requests,
};
pub use self::{
    clusters::{Clusters, RemoteCluster},
    controllers::{ControllerEnd, Controllers},
    describe::{Description, KindDescription, Port},
    error::ManagerError,
    handles::{ClientHandle, NotRunning},
    kubeconfig_secrets::KubeconfigSecretError,
    labelled_namespaces::NamespaceClusterError,
};
pub use crate::runnable::{Runnable, RunnableContext, RunnableResult};
use crate::{
    args::ManagerArgs,
    cache::CacheOptions,
    client,
    controller::{Controller, ControllerDescription, Environment, Index, Key, KeyController, Prepared},
    http::BindAddress,
    leader::{AnyLock, LeaderOptions, Lock, identity},
    metrics::Metrics,
    metrics_server::{self, MetricsServer},
    object::{AnyObject, KindName, Object},
    probe::Probes,
    process::program_name,
    rbac::PolicyRule,
    shard::ShardOptions,
    signal::Signals,
    trace::Traces,
    webhook::{Registrations, WebhookServer},
};

/// The default grace period for tasks to end when the manager stops, as in controller-runtime.
const GRACE: Duration = Duration::from_secs(30);

/// The grace period for writing the remaining events after the tasks have ended.
const EVENT_GRACE: Duration = Duration::from_secs(2);

/// Runs controllers against one cluster.
///
/// ```no_run
/// # use kubewright_runtime::manager::Manager;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let manager = Manager::from_args()?; // .controller(…)
/// manager.run().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Manager {
    connection: Connection,
    clock: SharedClock,
    random: Random,
    namespaces: BTreeSet<String>,
    cache: CacheOptions,
    metrics: Option<Metrics>,
    registry: prometheus::Registry,
    metrics_server: MetricsServer,
    metrics_handlers: Vec<(String, MethodRouter)>,
    probe_address: BindAddress,
    probes: Probes,
    traces: Traces,
    grace: Duration,
    elected: CancellationToken,
    runnables: Vec<Runnable>,
    replicas: Replicas,
    lock: Option<AnyLock>,
    concurrency: BTreeMap<String, usize>,
    kinds: Vec<DeclaredVersion>,
    policy_rules: Vec<PolicyRule>,
    controllers: Vec<Box<dyn Prepare>>,
    webhook_server: Option<WebhookServer>,
    webhooks: Registrations,
    handles: Handles,
    additions: Additions,
    fleet: Fleet,
    requests: Requests,
}

/// The coordination mode of this process with other replicas.
#[derive(Debug)]
enum Replicas {
    /// No coordination: the controllers always run.
    Alone,
    /// Leader election: the controllers run only on the leader.
    Lead(LeaderOptions),
    /// Sharding: the controllers reconcile a part of the keys.
    Shard(ShardOptions),
    /// Set by flags. Resolved when the client exists, since the default namespace depends on it.
    Args { is_sharded: bool, namespace: Option<String>, options: LeaderOptions },
}

/// The source of the client.
enum Connection {
    Client(Client),
    Args(Box<ManagerArgs>),
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Client(_) => f.write_str("Client"),
            Self::Args(args) => args.fmt(f),
        }
    }
}

/// A controller of any resource type.
trait Prepare: std::fmt::Debug + Send {
    fn describe(&self) -> ControllerDescription;

    fn needs_leader(&self) -> bool;

    /// Whether replicas can divide its keys.
    fn is_divisible(&self) -> bool;

    fn indexes(&self) -> Vec<(KindName, Index)>;

    fn prepare(self: Box<Self>, environment: &Environment, is_late: bool) -> Prepared;
}

impl<K: AnyObject> Prepare for Controller<K> {
    fn describe(&self) -> ControllerDescription {
        Controller::describe(self)
    }

    fn needs_leader(&self) -> bool {
        Controller::is_exclusive(self)
    }

    fn is_divisible(&self) -> bool {
        true
    }

    fn indexes(&self) -> Vec<(KindName, Index)> {
        Controller::indexes(self)
    }

    fn prepare(self: Box<Self>, environment: &Environment, is_late: bool) -> Prepared {
        Controller::prepare(*self, environment, is_late)
    }
}

impl<Q: Key> Prepare for KeyController<Q> {
    fn describe(&self) -> ControllerDescription {
        KeyController::describe(self)
    }

    fn needs_leader(&self) -> bool {
        KeyController::is_exclusive(self)
    }

    fn is_divisible(&self) -> bool {
        false
    }

    fn indexes(&self) -> Vec<(KindName, Index)> {
        Vec::new()
    }

    fn prepare(self: Box<Self>, environment: &Environment, _: bool) -> Prepared {
        KeyController::prepare(*self, environment)
    }
}

// The flags of a binary that has no others. Not a doc comment: clap would show it as the program's own description.
#[derive(Parser)]
struct Program {
    #[command(flatten)]
    manager: ManagerArgs,
}

impl Manager {
    /// Creates a manager for all namespaces, with the system clock and without HTTP servers.
    ///
    /// The client's configuration should have `default_retry = false`, as in [`ManagerArgs::config`]. Otherwise kube's
    /// client repeats a request after a gateway timeout. A create with a generated name may then take effect twice, and
    /// leave an object that no controller knows of.
    pub fn new(client: Client) -> Self {
        let metrics = MetricsServer::new(BindAddress::Disabled);
        Self::with(Connection::Client(client), metrics, BindAddress::Disabled)
    }

    /// Creates a manager from the program's flags and environment variables, and sets up logging. The process exits on
    /// an invalid flag and on `--help`.
    ///
    /// # Errors
    /// [`ManagerError::Log`], [`ManagerError::LeaderAndShards`].
    pub fn from_args() -> Result<Self, ManagerError> {
        Self::with_args(Program::parse().manager)
    }

    /// Like [`Manager::from_args`], for a program that defines further flags and has parsed them.
    ///
    /// # Errors
    /// [`ManagerError::Log`], [`ManagerError::LeaderAndShards`].
    pub fn with_args(args: ManagerArgs) -> Result<Self, ManagerError> {
        args.log.init()?;
        if args.leader_elect && args.shard {
            return Err(ManagerError::LeaderAndShards);
        }
        let tls = args.tls.options();
        let metrics = args.metrics.server().tls_options(tls.clone());
        let probes = args.health_probe_bind_address.clone();
        let (namespaces, qps, burst) = (args.namespaces(), args.kube_api_qps, args.kube_api_burst);
        let webhook_server = args.enable_webhooks.then(|| args.webhook.server().tls_options(tls));
        let replicas = if args.leader_elect || args.shard {
            let name = args.leader_election_id.clone().unwrap_or_else(program_name);
            let namespace = args.leader_election_namespace.clone();
            let mut options = LeaderOptions::new(namespace.clone().unwrap_or_default(), name, "");
            options.lease_duration = args.leader_elect_lease_duration;
            options.renew_deadline = args.leader_elect_renew_deadline;
            options.retry_period = args.leader_elect_retry_period;
            Replicas::Args { is_sharded: args.shard, namespace, options }
        } else {
            Replicas::Alone
        };
        let traces = if args.traces { Traces::default() } else { Traces::off() };
        let manager = Self::with(Connection::Args(Box::new(args)), metrics, probes).namespaces(namespaces);
        let manager = manager.client_rate_limit(qps, burst);
        Ok(Self { replicas, webhook_server, traces, ..manager })
    }

    fn with(connection: Connection, metrics_server: MetricsServer, probe_address: BindAddress) -> Self {
        Self {
            connection,
            clock: SystemClock::shared(),
            random: Random::from_entropy(),
            namespaces: BTreeSet::new(),
            cache: CacheOptions::new(),
            metrics: None,
            registry: prometheus::Registry::new(),
            metrics_server,
            metrics_handlers: Vec::new(),
            probe_address,
            probes: Probes::default(),
            traces: Traces::default(),
            grace: GRACE,
            elected: CancellationToken::new(),
            runnables: Vec::new(),
            replicas: Replicas::Alone,
            lock: None,
            concurrency: BTreeMap::new(),
            kinds: Vec::new(),
            policy_rules: Vec::new(),
            controllers: Vec::new(),
            webhook_server: None,
            webhooks: Registrations::default(),
            handles: Handles::default(),
            additions: Additions::default(),
            fleet: Fleet::default(),
            requests: Requests::default(),
        }
    }

    /// Declares a kind that the operator defines, in its stored version. `kubewright manifests` generates the
    /// CustomResourceDefinition from it. It has no effect at run time.
    ///
    /// ```
    /// # use kube::CustomResource;
    /// # use kubewright_runtime::manager::Manager;
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// #[kube(group = "my.domain", version = "v2", kind = "Lolcow")]
    /// struct LolcowSpec {}
    ///
    /// mod v1 {
    /// #   use kube::CustomResource;
    /// #   use schemars::JsonSchema;
    /// #   use serde::{Deserialize, Serialize};
    ///     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    ///     #[kube(group = "my.domain", version = "v1", kind = "Lolcow")]
    ///     pub struct LolcowSpec {}
    /// }
    ///
    /// # fn example(manager: Manager) -> Manager {
    /// manager.kind::<Lolcow>().version::<v1::Lolcow>()
    /// # }
    /// ```
    pub fn kind<K: Object + CustomResourceExt>(mut self) -> Self {
        self.kinds.push(DeclaredVersion { is_stored: true, definition: K::crd() });
        self
    }

    /// Declares another version of a kind that is [declared](Manager::kind).
    pub fn version<K: Object + CustomResourceExt>(mut self) -> Self {
        self.kinds.push(DeclaredVersion { is_stored: false, definition: K::crd() });
        self
    }

    /// Adds a rule to the operator's role, for requests that the program makes outside its controllers; see
    /// [`crate::rbac`].
    pub fn policy_rule(mut self, rule: PolicyRule) -> Self {
        self.policy_rules.push(rule);
        self
    }

    /// Adds a controller. [`Manager::controllers`] adds controllers while the manager runs.
    pub fn controller<K: AnyObject>(mut self, controller: Controller<K>) -> Self {
        self.controllers.push(Box::new(controller));
        self
    }

    /// Adds a controller whose keys are no Kubernetes objects. It can't be added while the manager runs.
    pub fn key_controller<Q: Key>(mut self, controller: KeyController<Q>) -> Self {
        self.controllers.push(Box::new(controller));
        self
    }

    /// Watches only these namespaces; an empty list means all. Cluster-scoped kinds are not affected.
    pub fn namespaces(self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { namespaces: namespaces.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the number of concurrent reconciles of controllers by kind and group, such as `PodSet.app.example.com` or
    /// `Pod`. It is meant for external configuration; [`Controller::concurrency`] takes precedence.
    ///
    /// ```
    /// # use kubewright_runtime::manager::Manager;
    /// # fn example(manager: Manager) -> Manager {
    /// manager.group_kind_concurrency([("PodSet.app.example.com", 8), ("Pod", 2)])
    /// # }
    /// ```
    pub fn group_kind_concurrency(self, workers: impl IntoIterator<Item = (impl Into<String>, usize)>) -> Self {
        Self { concurrency: workers.into_iter().map(|(kind, workers)| (kind.into(), workers)).collect(), ..self }
    }

    /// Sets the options of the cache: the objects that it watches and the parts that it keeps of each kind.
    pub fn cache(self, cache: CacheOptions) -> Self {
        Self { cache, ..self }
    }

    /// Sets the clock, for simulations. Default: the system clock.
    pub fn clock(self, clock: SharedClock) -> Self {
        Self { clock, ..self }
    }

    /// Sets the source of randomness, such as a seeded one for simulations. Default: the system's.
    pub fn random(self, random: Random) -> Self {
        Self { random, ..self }
    }

    /// Sets the metrics. Default: a new set, in [`Manager::metrics_registry`].
    pub fn metrics(self, metrics: Metrics) -> Self {
        Self { registry: metrics.registry().clone(), metrics: Some(metrics), ..self }
    }

    /// Returns the registry of `/metrics`, for families of the operator (controller-runtime: `metrics.Registry`).
    ///
    /// ```no_run
    /// # use kubewright_runtime::manager::Manager;
    /// use prometheus::{IntGaugeVec, register_int_gauge_vec_with_registry};
    ///
    /// # fn example(manager: &Manager) -> prometheus::Result<IntGaugeVec> {
    /// let help = "Ready replicas, by namespace.";
    /// register_int_gauge_vec_with_registry!("shop_ready_replicas", help, &["namespace"], manager.metrics_registry())
    /// # }
    /// ```
    pub fn metrics_registry(&self) -> prometheus::Registry {
        self.registry.clone()
    }

    /// Serves `/metrics` at this address over plain HTTP, without authentication. See [`Manager::metrics_server`] for
    /// TLS and authentication.
    pub fn metrics_address(self, metrics_address: BindAddress) -> Self {
        self.metrics_server(MetricsServer::new(metrics_address))
    }

    /// Sets the server of `/metrics`: its address, TLS and authentication.
    pub fn metrics_server(self, metrics_server: MetricsServer) -> Self {
        Self { metrics_server, ..self }
    }

    /// Adds a handler to the metrics server, such as for profiles or build information. A guarded server also
    /// authorizes requests for it. The path must begin with a slash.
    ///
    /// The role `metrics-reader` of a project grants `/metrics` only. Who reads another path from a guarded server
    /// needs a rule for it in a ClusterRole:
    ///
    /// ```yaml
    /// rules:
    /// - nonResourceURLs: [/version]
    ///   verbs: [get]
    /// ```
    ///
    /// ```no_run
    /// # use kubewright_runtime::manager::Manager;
    /// # fn example(manager: Manager) -> Manager {
    /// manager.metrics_handler("/version", axum::routing::get(async || env!("CARGO_PKG_VERSION")))
    /// # }
    /// ```
    pub fn metrics_handler(mut self, path: &str, handler: MethodRouter) -> Self {
        self.metrics_handlers.push((path.into(), handler));
        self
    }

    /// Adds a task that runs alongside the controllers.
    pub fn runnable(mut self, runnable: Runnable) -> Self {
        self.runnables.push(runnable);
        self
    }

    /// Sets the grace period for reconciles and runnables to end when the manager stops, after which they are aborted,
    /// which is an error. Default: 30 s; [`Duration::ZERO`] aborts at once, without an error. The pod's
    /// `terminationGracePeriodSeconds` should be longer.
    pub fn graceful_shutdown(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Returns a token that is cancelled when this replica becomes active: with leader election when it is elected,
    /// with sharding when it has joined the group, otherwise at the start.
    pub fn elected(&self) -> CancellationToken {
        self.elected.clone()
    }

    /// Sets the store of reconcile traces, or disables them with [`Traces::off`]. By default they are kept and served
    /// on loopback: see [`crate::trace`].
    pub fn traces(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    /// Sets the address of `/healthz` and `/readyz`; see [`crate::probe`] for their content and its restrictions.
    pub fn probe_address(self, probe_address: BindAddress) -> Self {
        Self { probe_address, ..self }
    }

    /// Enables leader election: the controllers run only while this lease is held. Caches are filled in the meantime,
    /// so that a replica can take over at once. Of this method and [`Manager::sharding`], the last call takes effect.
    pub fn leader_election(self, options: LeaderOptions) -> Self {
        Self { replicas: Replicas::Lead(options), ..self }
    }

    /// Keeps the record of the [leader election](Manager::leader_election) in another place than a `Lease` of the
    /// cluster. It enables no leader election by itself, and [sharding](Manager::sharding) always has leases.
    pub fn leader_lock(self, lock: impl Lock) -> Self {
        Self { lock: Some(AnyLock::new(lock)), ..self }
    }

    /// Enables sharding: the keys are divided among the replicas, so that all of them are active; see [`crate::shard`].
    /// Of this method and [`Manager::leader_election`], the last call takes effect.
    pub fn sharding(self, options: ShardOptions) -> Self {
        Self { replicas: Replicas::Shard(options), ..self }
    }

    /// Returns a handle to the manager's client, which can be used when the manager runs: for validators, defaulters,
    /// HTTP handlers and other code that is made before (controller-runtime: `GetClient`). The rules for its requests
    /// are given by [`Manager::policy_rule`].
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Namespace;
    /// # use kubewright_runtime::{manager::{ClientHandle, Manager}, object::ObjectKey};
    /// # fn example(manager: &Manager) {
    /// let client = manager.client_handle();
    /// let exists = async move |name: &str| -> Result<bool, Box<dyn std::error::Error>> {
    ///     Ok(client.get()?.kind::<Namespace>().get(&ObjectKey::cluster(name)).await?.is_some())
    /// };
    /// # }
    /// ```
    pub fn client_handle(&self) -> ClientHandle {
        self.handles.client.clone()
    }

    /// Returns a client of the manager's cluster, for use outside the controllers. Its requests are counted if
    /// [`Manager::metrics`] is set.
    ///
    /// # Errors
    /// [`ManagerError::Connect`] if the configuration is missing or invalid. This method doesn't connect yet.
    pub async fn client(&self) -> Result<client::Client, ManagerError> {
        let metrics = self.metrics.clone().unwrap_or_else(|| Metrics::new(self.clock.clone()));
        let kube = self.connection.client(&metrics).await?;
        Ok(client::Client::new(kube).user_agent(&self.requests.user_agent()))
    }

    /// Returns the health and readiness checks, for adding further ones. The manager's own checks are `ping`, `caches`,
    /// `declarations` (see [`Context::cached`](crate::context::Context::cached)), `webhook` (with webhooks), and
    /// `shards` (with sharding), which checks that this replica is a member and sees the others.
    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// Runs until SIGTERM or SIGINT, then shuts down as [`Manager::run_until`] does. A second signal exits the process
    /// at once.
    ///
    /// If the environment variable `KUBEWRIGHT_DESCRIBE` is set to a file, it only writes the
    /// [description](Manager::describe) to that file as JSON and returns. `kubewright manifests` uses this.
    ///
    /// # Errors
    /// Those of [`Manager::run_until`], and [`ManagerError::Describe`].
    pub async fn run(self) -> Result<(), ManagerError> {
        if let Some(file) = describe::wanted() {
            self.check()?;
            return self.describe().write(&file);
        }
        let signals = Signals::install().map_err(ManagerError::Signals)?;
        self.run_until(signals.shutdown().cancelled_owned()).await
    }

    /// Runs until `shutdown` completes. It then takes no more keys, cancels [`crate::context::Context::cancelled`], and
    /// aborts reconciles in flight after a [grace period](Manager::graceful_shutdown). When it returns, all its tasks
    /// have ended.
    ///
    /// The manager keeps running if a kind can't be watched. The error is logged and makes `/readyz` fail. The
    /// controllers that need the kind start when it can be watched, unless they have a
    /// [`Controller::cache_sync_timeout`].
    ///
    /// # Errors
    /// If the manager can't start, for example without a cluster, with an address in use, or with two controllers of
    /// the same name; if a runnable fails or a controller [can't continue](crate::controller::ControllerError); if not
    /// all tasks end within the grace period; and if leadership or shard membership is lost, after which all tasks are
    /// aborted at once, since another replica may take over.
    pub async fn run_until(mut self, shutdown: impl IntoFuture<Output = ()>) -> Result<(), ManagerError> {
        let shutdown = shutdown.into_future();
        self.check()?;
        let (mut environment, events) = self.connect().await?;
        let replicas = mem::replace(&mut self.replicas, Replicas::Alone).resolve(&environment);
        environment.coordinate(&replicas);
        self.handles.connect(&environment.cache);
        let tasks = self.take_tasks(&environment);
        let servers = self.start_servers(&environment).await?;
        let (client, random, families) = (&environment.client, &environment.random, environment.cache_metrics.clone());
        let watches = environment.cache.start(client, random, families, Span::none());
        let result = match LeaseHold::start(replicas, self.lock, &environment) {
            Err(error) => Err(error),
            Ok(hold) => Lifecycle { tasks, hold, begun: self.elected, grace: self.grace }.run(shutdown).await,
        };
        watches.shutdown().await;
        events.shutdown(EVENT_GRACE).await;
        servers.shutdown().await;
        info!("stopped");
        #[cfg(feature = "opentelemetry")]
        crate::telemetry::flush().await;
        result
    }

    fn check(&self) -> Result<(), ManagerError> {
        let mut names = BTreeSet::new();
        for controller in &self.controllers {
            let name = controller.describe().name;
            if !names.insert(name.clone()) {
                return Err(ManagerError::SameName(name));
            }
        }
        handles::check_indexes(self.indexes())?;
        describe::check_kinds(&self.kinds)?;
        if let Some((path, _)) = self.metrics_handlers.iter().find(|(path, _)| !is_plain(path)) {
            return Err(ManagerError::BadMetricsPath(path.clone()));
        }
        if let Some(path) = metrics_server::duplicate_path(&self.metrics_handlers) {
            return Err(ManagerError::SameMetricsPath(path.into()));
        }
        let is_sharded = matches!(self.replicas, Replicas::Shard(_) | Replicas::Args { is_sharded: true, .. });
        if let Some(runnable) = self.runnables.iter().find(|runnable| runnable.needs_leader && is_sharded) {
            return Err(ManagerError::NoLeader(runnable.name.clone()));
        }
        let mut of_one_leader = self.controllers.iter().filter(|it| it.needs_leader() && !it.is_divisible());
        if let Some(controller) = of_one_leader.next().filter(|_| is_sharded) {
            return Err(ManagerError::Indivisible(controller.describe().name));
        }
        self.check_webhook_paths()?;
        let mut hubs = BTreeSet::new();
        let kinds = self.webhooks.hubs.iter().map(|hub| hub.describe().hub.group_kind());
        if let Some(kind) = kinds.into_iter().find(|kind| !hubs.insert(kind.clone())) {
            return Err(ManagerError::SameHub(kind));
        }
        Ok(())
    }

    fn check_webhook_paths(&self) -> Result<(), ManagerError> {
        let mut paths = BTreeSet::new();
        for path in self.webhooks.paths() {
            if !is_plain(path) {
                return Err(ManagerError::BadPath(path.into()));
            }
            if !paths.insert(path) {
                return Err(ManagerError::SamePath(path.into()));
            }
        }
        Ok(())
    }
}

impl Replicas {
    /// Resolves flags into options, including the defaults that depend on the client.
    fn resolve(self, environment: &Environment) -> Self {
        let Self::Args { is_sharded, namespace, options } = self else { return self };
        let namespace = namespace.unwrap_or_else(|| environment.client.default_namespace().into());
        let options = LeaderOptions { namespace, identity: identity(&environment.random), ..options };
        if is_sharded { Self::Shard(options.into()) } else { Self::Lead(options) }
    }
}

/// Returns whether a path contains no route patterns.
fn is_plain(path: &str) -> bool {
    let has_odd_part = path.split('/').any(|part| part.starts_with([':', '*']));
    path.starts_with('/') && !path.contains(['{', '}', ' ', '?', '#']) && !has_odd_part
}
