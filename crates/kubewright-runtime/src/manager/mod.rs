//! The manager: one client, one cache, one clock and one source of randomness for all controllers, and their lifecycle.
//!
//! It starts, as controller-runtime does, the HTTP servers, the webhooks, the caches, what runs on every replica, and, once it
//! leads if that is asked for, the rest; and stops them the other way round. A replica that doesn't lead fills its caches and queues all
//! the same, so that it can take over at once.

mod describe;
mod lifecycle;
mod runnable;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as StdError,
    future::IntoFuture,
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use axum::routing::MethodRouter;
use clap::Parser;
use futures::{FutureExt, TryFutureExt};
use kube::{Client, CustomResourceExt};
use kubewright_apimachinery::{
    clock::{SharedClock, SystemClock},
    random::Random,
};
use thiserror::Error;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::{
    describe::DeclaredVersion,
    lifecycle::{Lifecycle, Task, Tenure},
};
pub use self::{
    describe::{Description, KindDescription, Port},
    runnable::{Runnable, RunnableContext, RunnableResult},
};

use crate::{
    args::{ConnectError, ManagerArgs, hostname, program_name},
    cache::{Cache, CacheFamilies, CacheOptions, NotSynced},
    client,
    controller::{BarrierFamilies, Controller, ControllerDescription, ControllerError, Environment, Index, Prepared},
    conversion::Hub,
    event::Broadcaster,
    leader::{LeaderOptions, LeaderOptionsError, fence::Fence, identity},
    log::LevelError,
    metrics::{self, Metrics, MetricsServer},
    object::{KindName, Object},
    probe::{self, BindAddress, BindError, Probes, Server},
    rbac::PolicyRule,
    shard::{ShardError, ShardOptions, Share},
    signal::Signals,
    trace::Traces,
    webhook::{self, ClientAuthoritiesError, Content, Surroundings, Webhook, WebhookServer},
};

/// How long work may take to end when the manager stops, as in controller-runtime.
const GRACE: Duration = Duration::from_secs(30);

/// How long events that were recorded may take to be written at the end.
const EVENT_GRACE: Duration = Duration::from_secs(2);

/// Why a manager can't run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// There is no way to the cluster.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A server can't listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The log level makes no sense.
    #[error(transparent)]
    Log(#[from] LevelError),
    /// The signals can't be heard.
    #[error("can't listen for signals")]
    Signals(#[source] io::Error),
    /// Two controllers have one name, so that their metrics, events and field ownership would mix.
    #[error("two controllers are named {0:?}: give one of them another name with Controller::name")]
    SameName(String),
    /// Two indexes of one kind have one name, so that one would be found in the other's place.
    #[error(
        "controllers {first:?} and {second:?} both declare an index {index:?} of {kind}: declare it in one of them, or give one another name"
    )]
    SameIndex {
        /// The kind.
        kind: String,
        /// The name of the index.
        index: String,
        /// The controller that declares it first.
        first: String,
        /// The other one; it may be the same.
        second: String,
    },
    /// A version is declared of a kind that isn't.
    #[error(
        "{0} is declared as a version of a kind that is not declared itself: say with Manager::kind which is stored"
    )]
    NoKind(String),
    /// A version of a kind is declared twice.
    #[error("{0} is declared twice: once is enough, and only one version of a kind can be the one that is stored")]
    SameKind(String),
    /// The description can't be written.
    #[error("the description can't be written to {}, which KUBEWRIGHT_DESCRIBE names", path.display())]
    Describe {
        /// Where to.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Two webhooks have one path.
    #[error(
        "two webhooks are served at {0:?}: give one of them another path with Webhook::defaulting_path or validating_path"
    )]
    SamePath(String),
    /// A kind has two hubs.
    #[error("two hubs convert the kind {0}: add all its versions as spokes to one")]
    SameHub(String),
    /// Two handlers of the metrics server have one path, or one has that of the metrics.
    #[error("two handlers of the metrics server are at {0:?}: give one of them another path")]
    SameMetricsPath(String),
    /// A controller can't go on.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// A runnable failed.
    #[error("{name} failed")]
    Runnable {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A runnable wants the leader, and there is none.
    #[error(
        "{0} needs the leader, and replicas that divide the keys have none: let it run on all with Runnable::needs_leader(false)"
    )]
    NoLeader(String),
    /// The authorities of the webhooks' callers can't be read.
    #[error(transparent)]
    ClientAuthorities(#[from] ClientAuthoritiesError),
    /// A task of ours ended in a way that nobody thought of.
    #[error("a part of the manager ended badly")]
    Task(#[source] JoinError),
    /// The path of a handler of the metrics server is none.
    #[error(
        "the path {0:?} of a metrics handler must begin with a slash, and hold neither braces nor blanks, nor parts that begin with ':' or '*'"
    )]
    BadMetricsPath(String),
    /// The path of a webhook is none.
    #[error(
        "the webhook path {0:?} must begin with a slash, and hold neither braces nor blanks, nor parts that begin with ':' or '*'"
    )]
    BadPath(String),
    /// The durations of the leader election don't fit together.
    #[error(transparent)]
    LeaderOptions(#[from] LeaderOptionsError),
    /// One active replica, and all of them active: not both.
    #[error(
        "--leader-elect and --shard exclude each other: with --shard all replicas work, each on its part of the objects"
    )]
    LeaderAndShards,
    /// The options of sharding can't work.
    #[error(transparent)]
    Shards(#[from] ShardError),
    /// Another replica leads now. Let the process end, and be started again.
    #[error("leadership lost: the lease {lease} could not be renewed in time: {why}")]
    LeadershipLost {
        /// Its namespace and name.
        lease: String,
        /// What failed last, or who leads now.
        why: String,
    },
    /// The other replicas take over our keys. Let the process end, and be started again.
    #[error("the place among the shards is lost: the lease {0} could not be renewed in time")]
    ShardLost(String),
}

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
    metrics_server: MetricsServer,
    metrics_handlers: Vec<(String, MethodRouter)>,
    probe_address: BindAddress,
    probes: Probes,
    traces: Traces,
    grace: Duration,
    elected: CancellationToken,
    runnables: Vec<Runnable>,
    replicas: Replicas,
    concurrency: BTreeMap<String, usize>,
    kinds: Vec<DeclaredVersion>,
    policy_rules: Vec<PolicyRule>,
    controllers: Vec<Box<dyn Prepare>>,
    webhook_server: Option<WebhookServer>,
    webhooks: Content,
}

/// What this process is to others of its kind.
#[derive(Debug)]
enum Replicas {
    /// It minds none: its controllers work in any case.
    Alone,
    /// Its controllers work only while it leads.
    Lead(LeaderOptions),
    /// Its controllers work on a part of the keys.
    Shard(ShardOptions),
    /// As the flags say, once the client is known: in its namespace, if none is given.
    Args { is_sharded: bool, namespace: Option<String>, name: String },
}

/// Where the client comes from.
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

/// A controller of any kind.
trait Prepare: std::fmt::Debug + Send {
    fn describe(&self) -> ControllerDescription;

    fn needs_leader(&self) -> bool;

    fn indexes(&self) -> Vec<(KindName, Index)>;

    fn prepare(self: Box<Self>, environment: &Environment<'_>) -> Prepared;
}

impl<K: Object> Prepare for Controller<K> {
    fn describe(&self) -> ControllerDescription {
        Controller::describe(self)
    }

    fn needs_leader(&self) -> bool {
        Controller::is_exclusive(self)
    }

    fn indexes(&self) -> Vec<(KindName, Index)> {
        Controller::indexes(self)
    }

    fn prepare(self: Box<Self>, environment: &Environment<'_>) -> Prepared {
        Controller::prepare(*self, environment)
    }
}

// The flags of a binary that has no others. Not a doc comment: clap would show it as the program's own description.
#[derive(Parser)]
struct Program {
    #[command(flatten)]
    manager: ManagerArgs,
}

impl Manager {
    /// A manager of all namespaces, on the machine's clock, without HTTP servers.
    ///
    /// Let the client's configuration have `default_retry = false`, as [`ManagerArgs::config`] has: kube's client otherwise sends
    /// a request again by itself when a gateway says that it took too long, and of a creation that was done twice under drawn
    /// names, nobody would know the first.
    pub fn new(client: Client) -> Self {
        let metrics = MetricsServer::new(BindAddress::Disabled);
        Self::with(Connection::Client(client), metrics, BindAddress::Disabled)
    }

    /// A manager as its program's flags and environment say, which also set up the log. A wrong flag, or `--help`, ends
    /// the process as usual.
    ///
    /// # Errors
    /// [`ManagerError::Log`], [`ManagerError::LeaderAndShards`].
    pub fn from_args() -> Result<Self, ManagerError> {
        Self::with_args(Program::parse().manager)
    }

    /// [`Manager::from_args`] for a program that has flags of its own and has parsed them.
    ///
    /// # Errors
    /// [`ManagerError::Log`], [`ManagerError::LeaderAndShards`].
    pub fn with_args(args: ManagerArgs) -> Result<Self, ManagerError> {
        args.log.init()?;
        if args.leader_elect && args.shard {
            return Err(ManagerError::LeaderAndShards);
        }
        let (metrics, probes) = (args.metrics.server(), args.health_probe_bind_address.clone());
        let namespaces = args.namespaces();
        let webhook_server = args.enable_webhooks.then(|| args.webhook.server());
        let replicas = if args.leader_elect || args.shard {
            let name = args.leader_election_id.clone().unwrap_or_else(program_name);
            Replicas::Args { is_sharded: args.shard, namespace: args.leader_election_namespace.clone(), name }
        } else {
            Replicas::Alone
        };
        let traces = if args.traces { Traces::default() } else { Traces::off() };
        let manager = Self::with(Connection::Args(Box::new(args)), metrics, probes).namespaces(namespaces);
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
            metrics_server,
            metrics_handlers: Vec::new(),
            probe_address,
            probes: Probes::default(),
            traces: Traces::default(),
            grace: GRACE,
            elected: CancellationToken::new(),
            runnables: Vec::new(),
            replicas: Replicas::Alone,
            concurrency: BTreeMap::new(),
            kinds: Vec::new(),
            policy_rules: Vec::new(),
            controllers: Vec::new(),
            webhook_server: None,
            webhooks: Content::default(),
        }
    }

    /// Declares a kind that the operator brings, in the version in which it is stored: `kubewright manifests` makes its
    /// CustomResourceDefinition. Running, it has no effect.
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

    /// Adds a rule to the operator's role for requests that the program makes outside its controllers; see [`crate::rbac`].
    pub fn policy_rule(mut self, rule: PolicyRule) -> Self {
        self.policy_rules.push(rule);
        self
    }

    /// Adds a controller.
    pub fn controller<K: Object>(mut self, controller: Controller<K>) -> Self {
        self.controllers.push(Box::new(controller));
        self
    }

    /// Adds the webhooks of a kind. They are served where [`Manager::webhook_server`], or the flags, say.
    pub fn webhook<K: Object>(mut self, webhook: Webhook<K>) -> Self {
        self.webhooks.webhooks.extend(webhook.endpoints());
        self
    }

    /// Converts the versions of a kind into each other, where the webhooks are served.
    pub fn conversion<K: Object>(mut self, hub: Hub<K>) -> Self {
        self.webhooks.hubs.push(Arc::new(hub));
        self
    }

    /// Where to serve the webhooks. A manager that wasn't made from flags serves none without it.
    pub fn webhook_server(self, server: WebhookServer) -> Self {
        Self { webhook_server: Some(server), ..self }
    }

    /// Watches only these namespaces; none means all. Cluster-scoped kinds are watched whole in any case.
    pub fn namespaces(self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { namespaces: namespaces.into_iter().map(Into::into).collect(), ..self }
    }

    /// How many keys the controllers of these kinds may work on at once that don't say it themselves
    /// ([`Controller::concurrency`]): by kind and group, such as `PodSet.app.example.com` or `Pod`. It is for what is
    /// configured from outside.
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

    /// What the cache looks at and keeps, kind by kind.
    pub fn cache(self, cache: CacheOptions) -> Self {
        Self { cache, ..self }
    }

    /// Another clock than the machine's: for simulations.
    pub fn clock(self, clock: SharedClock) -> Self {
        Self { clock, ..self }
    }

    /// Another source of randomness than the machine's: a seeded one, for simulations.
    pub fn random(self, random: Random) -> Self {
        Self { random, ..self }
    }

    /// Where to count; a set of its own by default. Give one to add families of your own to its registry.
    pub fn metrics(self, metrics: Metrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Where to serve `/metrics` by plain HTTP, for everyone; see [`Manager::metrics_server`] for more.
    pub fn metrics_address(self, metrics_address: BindAddress) -> Self {
        self.metrics_server(MetricsServer::new(metrics_address))
    }

    /// Where and how to serve `/metrics`, and to whom.
    pub fn metrics_server(self, metrics_server: MetricsServer) -> Self {
        Self { metrics_server, ..self }
    }

    /// Serves something else beside `/metrics`, to those who may read them if it is guarded: profiles, build information. The
    /// path begins with a slash.
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

    /// Runs something else beside the controllers.
    pub fn runnable(mut self, runnable: Runnable) -> Self {
        self.runnables.push(runnable);
        self
    }

    /// How long reconciles and runnables may take to end when the manager stops, before they are aborted: thirty seconds by
    /// default, and [`Duration::ZERO`] not at all. A pod's `terminationGracePeriodSeconds` should be longer.
    pub fn graceful_shutdown(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Cancelled when this replica begins to work: when it is elected, at once if no one is elected, or when it has joined
    /// those that divide the keys.
    pub fn elected(&self) -> CancellationToken {
        self.elected.clone()
    }

    /// Where to keep what the reconciles do, or [`Traces::off`]. By default it is kept, and served beside the probes: see
    /// [`crate::trace`] for what is shown there.
    pub fn traces(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    /// Where to serve `/healthz`, `/readyz` and `/debug/traces`.
    pub fn probe_address(self, probe_address: BindAddress) -> Self {
        Self { probe_address, ..self }
    }

    /// Lets the controllers work only while this lease is held. The caches are filled meanwhile, so that a replica that
    /// takes over can begin at once. Of this and [`Manager::sharding`] the later call counts.
    pub fn leader_election(self, options: LeaderOptions) -> Self {
        Self { replicas: Replicas::Lead(options), ..self }
    }

    /// Lets the replicas divide the keys, so that all of them work: see [`crate::shard`]. Of this and
    /// [`Manager::leader_election`] the later call counts.
    pub fn sharding(self, options: ShardOptions) -> Self {
        Self { replicas: Replicas::Shard(options), ..self }
    }

    /// A client of the manager's cluster, for what a program does beside its controllers, such as a command or a task of its
    /// own. Its requests are counted if the manager was given [`Manager::metrics`].
    ///
    /// # Errors
    /// [`ManagerError::Connect`]. It doesn't connect yet.
    pub async fn client(&self) -> Result<client::Client, ManagerError> {
        let kube = match &self.connection {
            Connection::Client(client) => client.clone(),
            Connection::Args(args) => {
                let metrics = self.metrics.clone().unwrap_or_else(|| Metrics::new(self.clock.clone()));
                args.client(&metrics).await?
            }
        };
        Ok(client::Client::new(kube))
    }

    /// The health and readiness checks, to add some. The manager's own are `ping`, `caches`,
    /// with webhooks `webhook`, and with sharding `shards`: that it takes part, and sees who else does.
    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// Runs until SIGTERM or SIGINT, then stops as [`Manager::run_until`]. A second signal ends the process at once.
    ///
    /// With `KUBEWRIGHT_DESCRIBE=<file>` in its environment it writes its [description](Manager::describe) there instead, as JSON, and returns
    /// before it connects or listens: that is how `kubewright manifests` asks a program.
    ///
    /// # Errors
    /// As [`Manager::run_until`], and [`ManagerError::Describe`].
    pub async fn run(self) -> Result<(), ManagerError> {
        if let Some(file) = describe::wanted() {
            self.check()?;
            return self.describe().write(&file);
        }
        let signals = Signals::install().map_err(ManagerError::Signals)?;
        self.run_until(signals.shutdown().cancelled_owned()).await
    }

    /// Runs until `shutdown` completes; then takes no more keys, cancels [`crate::context::Context::cancelled`], and gives
    /// the reconciles under way [some time](Manager::graceful_shutdown) before it aborts them. When it returns, no task of it
    /// is left.
    ///
    /// A kind that can't be watched doesn't end it: that is logged and makes `/readyz` fail, and the controllers that need
    /// the kind start when it can, unless they have a [`Controller::cache_sync_timeout`].
    ///
    /// # Errors
    /// When it can't begin: no cluster, an address that is taken, two controllers of one name. When a runnable fails, or
    /// a controller [can't go on](ControllerError). And when
    /// leadership, or the place among the shards, is lost: then all work is aborted at once, since another replica may begin.
    pub async fn run_until(self, shutdown: impl IntoFuture<Output = ()>) -> Result<(), ManagerError> {
        let shutdown = shutdown.into_future();
        self.check()?;
        let metrics = self.metrics.unwrap_or_else(|| Metrics::new(self.clock.clone()));
        let client = match &self.connection {
            Connection::Client(client) => client.clone(),
            Connection::Args(args) => args.client(&metrics).await?,
        };
        let client = client::heeding(&client);
        let cache = Cache::new(self.namespaces, self.cache);
        let events = Broadcaster::start(client.clone(), &hostname(), self.clock.clone(), metrics.clone());
        let fence = Fence::default();
        let mut environment = Environment {
            fenced: client.clone(),
            client,
            cache,
            clock: self.clock,
            random: self.random,
            barrier_metrics: BarrierFamilies::new(metrics.registry()),
            metrics,
            events: &events,
            traces: &self.traces,
            share: Share::default(),
            is_elected: false,
            concurrency: self.concurrency,
            fence,
        };
        let replicas = self.replicas.resolve(&environment);
        match replicas {
            Replicas::Alone | Replicas::Args { .. } => {}
            Replicas::Lead(_) => {
                environment.raise_fence();
                environment.is_elected = true;
            }
            Replicas::Shard(_) => {
                environment.raise_fence();
                environment.share = Share::of_a_group(environment.clock.clone());
            }
        }
        let (mut everywhere, mut elected) = (Vec::new(), Vec::new());
        for controller in self.controllers {
            let group = if controller.needs_leader() { &mut elected } else { &mut everywhere };
            group.push(controller_task(controller.prepare(&environment)));
        }
        for runnable in self.runnables {
            let group = if runnable.needs_leader { &mut elected } else { &mut everywhere };
            group.push(runnable.task(&environment));
        }

        add_checks(&self.probes, &environment.cache, &environment.share);
        let router = self.probes.router().merge(probe::traces_router(self.traces.clone()));
        let probes = Server::start("probes", "--health-probe-bind-address", &self.probe_address, router).await?;
        let Environment { client, clock, metrics, .. } = &environment;
        let metrics_server = self.metrics_server.start(metrics, self.metrics_handlers, client, clock).await?;
        let surroundings = Surroundings { client, clock, metrics, readyz: &self.probes.readyz };
        let webhooks = match self.webhook_server.filter(|_| !self.webhooks.is_empty()) {
            Some(server) => {
                let callers = server.callers()?;
                webhook::Running::start(self.webhooks, server, callers, surroundings).await?
            }
            None => None,
        };
        let families = CacheFamilies::new(metrics.registry());
        let watches = environment.cache.start(client, &environment.random, families);
        let result = match Tenure::start(replicas, &environment) {
            Err(error) => Err(error),
            Ok(tenure) => {
                let begun = self.elected;
                Lifecycle { everywhere, elected, tenure, begun, grace: self.grace }.run(shutdown).await
            }
        };
        watches.shutdown().await;
        events.shutdown(EVENT_GRACE).await;
        if let Some(webhooks) = webhooks {
            webhooks.shutdown().await;
        }
        if let Some(metrics_server) = metrics_server {
            metrics_server.shutdown().await;
        }
        if let Some(probes) = probes {
            probes.shutdown().await;
        }
        info!("stopped");
        #[cfg(feature = "opentelemetry")]
        crate::telemetry::flush().await;
        result
    }

    fn check(&self) -> Result<(), ManagerError> {
        let (mut names, mut indexes) = (BTreeSet::new(), BTreeMap::new());
        for controller in &self.controllers {
            let name = controller.describe().name;
            if !names.insert(name.clone()) {
                return Err(ManagerError::SameName(name));
            }
            for (kind, index) in controller.indexes() {
                let (first, known) = indexes.entry((kind.clone(), index.name)).or_insert_with(|| (name.clone(), None));
                if known.replace(index).is_some_and(|known: Index| !known.is(&index)) {
                    let (kind, index, first) = (kind.to_string(), index.name.into(), first.clone());
                    return Err(ManagerError::SameIndex { kind, index, first, second: name });
                }
            }
        }
        describe::check_kinds(&self.kinds)?;
        if let Some((path, _)) = self.metrics_handlers.iter().find(|(path, _)| !is_plain(path)) {
            return Err(ManagerError::BadMetricsPath(path.clone()));
        }
        if let Some(path) = metrics::doubled(&self.metrics_handlers) {
            return Err(ManagerError::SameMetricsPath(path.into()));
        }
        let is_sharded = matches!(self.replicas, Replicas::Shard(_) | Replicas::Args { is_sharded: true, .. });
        if let Some(runnable) = self.runnables.iter().find(|runnable| runnable.needs_leader && is_sharded) {
            return Err(ManagerError::NoLeader(runnable.name.clone()));
        }
        let mut paths = BTreeSet::new();
        for path in self.webhooks.paths() {
            if !is_plain(path) {
                return Err(ManagerError::BadPath(path.into()));
            }
            if !paths.insert(path) {
                return Err(ManagerError::SamePath(path.into()));
            }
        }
        let mut hubs = BTreeSet::new();
        let kinds = self.webhooks.hubs.iter().map(|hub| hub.describe().hub.group_kind());
        if let Some(kind) = kinds.into_iter().find(|kind| !hubs.insert(kind.clone())) {
            return Err(ManagerError::SameHub(kind));
        }
        Ok(())
    }
}

impl Replicas {
    /// What the options say, with the defaults that depend on the client.
    fn resolve(self, environment: &Environment<'_>) -> Self {
        let Self::Args { is_sharded, namespace, name } = self else { return self };
        let namespace = namespace.unwrap_or_else(|| environment.client.default_namespace().into());
        let identity = identity(&environment.random);
        match is_sharded {
            true => Self::Shard(ShardOptions::new(namespace, name, identity)),
            false => Self::Lead(LeaderOptions::new(namespace, name, identity)),
        }
    }
}

/// Whether a path means itself and nothing else.
fn is_plain(path: &str) -> bool {
    let has_odd_part = path.split('/').any(|part| part.starts_with([':', '*']));
    path.starts_with('/') && !path.contains(['{', '}', ' ', '?', '#']) && !has_odd_part
}

/// A controller as a part of the lifecycle.
fn controller_task(controller: Prepared) -> Task {
    Box::new(|stop, abort| controller.run(stop, abort).map_err(ManagerError::from).boxed())
}

/// The manager's own checks: that it answers, that its caches are filled, and that it has its part of the keys.
fn add_checks(probes: &Probes, cache: &Cache, share: &Share) {
    if share.is_of_a_group() {
        let share = share.clone();
        probes.readyz.add("shards", move || std::future::ready(share.check()));
    }
    probes.healthz.add("ping", || async { Ok(()) });
    let cache = cache.clone();
    probes.readyz.add("caches", move || {
        let unsynced = cache.unsynced();
        async move { if unsynced.is_empty() { Ok(()) } else { Err(NotSynced(unsynced).to_string()) } }
    });
}
