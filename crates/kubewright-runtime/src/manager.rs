//! The manager: one client, one cache, one clock and one source of randomness for all controllers, and their lifecycle.
//!
//! It starts the HTTP servers, then the webhooks, then the caches, then, once it leads if that is asked for, the controllers; and stops them
//! the other way round.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::IntoFuture,
    io,
    time::Duration,
};

use clap::Parser;
use kube::Client;
use kubewright_apimachinery::{
    clock::{SharedClock, SystemClock},
    random::Random,
};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    args::{ConnectError, ManagerArgs, hostname, program_name},
    cache::{Cache, CacheFamilies, CacheOptions, NotSynced},
    client,
    controller::{BarrierFamilies, Controller, ControllerDescription, Environment, Prepared},
    event::Broadcaster,
    leader::{LeaderElection, LeaderOptions, LeaderOptionsError, identity},
    log::LevelError,
    metrics::Metrics,
    object::Object,
    probe::{self, BindAddress, BindError, Probes, Server},
    shard::{Membership, ShardError, ShardOptions, Share},
    signal::Signals,
    trace::Traces,
    webhook::{self, Endpoint, Surroundings, Webhook, WebhookDescription, WebhookServer},
};

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
    #[error("can't listen for signals: {0}")]
    Signals(#[source] io::Error),
    /// Two controllers have one name, so that their metrics, events and field ownership would mix.
    #[error("two controllers are named {0:?}: give one of them another name with Controller::name")]
    SameName(String),
    /// Two webhooks have one path.
    #[error(
        "two webhooks are served at {0:?}: give one of them another path with Webhook::defaulting_path or validating_path"
    )]
    SamePath(String),
    /// The path of a webhook is none.
    #[error("the webhook path {0:?} must begin with a slash and hold neither braces nor blanks")]
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
    #[error("leadership lost: the lease {0} could not be renewed in time")]
    LeadershipLost(String),
    /// The other replicas take over our keys. Let the process end, and be started again.
    #[error("the place among the shards is lost: the lease {0} could not be renewed in time")]
    ShardLost(String),
}

/// What a manager would do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Its controllers, in the order in which they were added.
    pub controllers: Vec<ControllerDescription>,
    /// The namespaces it watches; none means all.
    pub namespaces: BTreeSet<String>,
    /// Its webhooks, in the order in which they were added; [`webhook::manifests`] makes the configurations from them.
    pub webhooks: Vec<WebhookDescription>,
    /// The ports it listens on: `metrics`, `probes`, `webhook`. None whose number is left to the system.
    pub ports: Vec<Port>,
}

/// A port that a manager listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Port {
    /// What is served there.
    pub name: &'static str,
    /// Its number.
    pub number: u16,
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
    metrics_address: BindAddress,
    probe_address: BindAddress,
    probes: Probes,
    traces: Traces,
    replicas: Replicas,
    concurrency: BTreeMap<String, usize>,
    controllers: Vec<Box<dyn Prepare>>,
    webhook_server: Option<WebhookServer>,
    webhooks: Vec<Endpoint>,
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

    fn prepare(self: Box<Self>, environment: &Environment<'_>) -> Prepared;
}

impl<K: Object> Prepare for Controller<K> {
    fn describe(&self) -> ControllerDescription {
        Controller::describe(self)
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
    pub fn new(client: Client) -> Self {
        Self::with(Connection::Client(client), BindAddress::Disabled, BindAddress::Disabled)
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
        let (metrics, probes) = (args.metrics_bind_address.clone(), args.health_probe_bind_address.clone());
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

    fn with(connection: Connection, metrics_address: BindAddress, probe_address: BindAddress) -> Self {
        Self {
            connection,
            clock: SystemClock::shared(),
            random: Random::from_entropy(),
            namespaces: BTreeSet::new(),
            cache: CacheOptions::new(),
            metrics: None,
            metrics_address,
            probe_address,
            probes: Probes::default(),
            traces: Traces::default(),
            replicas: Replicas::Alone,
            concurrency: BTreeMap::new(),
            controllers: Vec::new(),
            webhook_server: None,
            webhooks: Vec::new(),
        }
    }

    /// Adds a controller.
    pub fn controller<K: Object>(mut self, controller: Controller<K>) -> Self {
        self.controllers.push(Box::new(controller));
        self
    }

    /// Adds the webhooks of a kind. They are served where [`Manager::webhook_server`], or the flags, say.
    pub fn webhook<K: Object>(mut self, webhook: Webhook<K>) -> Self {
        self.webhooks.extend(webhook.endpoints());
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

    /// Where to serve `/metrics`.
    pub fn metrics_address(self, metrics_address: BindAddress) -> Self {
        Self { metrics_address, ..self }
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

    /// The health and readiness checks, to add some. The manager's own are `ping`, `caches` and, with webhooks, `webhook`.
    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// What the manager would do: its controllers and the kinds they use, its webhooks, its ports. Manifests are made from
    /// this.
    pub fn describe(&self) -> Description {
        Description {
            controllers: self.controllers.iter().map(|controller| controller.describe()).collect(),
            namespaces: self.namespaces.clone(),
            webhooks: self.webhooks.iter().map(|webhook| webhook.description.clone()).collect(),
            ports: self.ports(),
        }
    }

    fn ports(&self) -> Vec<Port> {
        let webhooks = self.webhook_server.as_ref().filter(|_| !self.webhooks.is_empty());
        let addresses = [("metrics", Some(&self.metrics_address)), ("probes", Some(&self.probe_address))];
        let addresses = addresses.into_iter().chain([("webhook", webhooks.map(|server| &server.address))]);
        let ports = addresses.filter_map(|(name, address)| Some(Port { name, number: address?.port()? }));
        ports.collect()
    }

    /// Runs until SIGTERM or SIGINT, then stops as [`Manager::run_until`]. A second signal ends the process at once.
    ///
    /// # Errors
    /// As [`Manager::run_until`].
    pub async fn run(self) -> Result<(), ManagerError> {
        let signals = Signals::install().map_err(ManagerError::Signals)?;
        self.run_until(signals.shutdown().cancelled_owned()).await
    }

    /// Runs until `shutdown` completes; then takes no more keys, cancels [`crate::context::Context::cancelled`], and gives
    /// the reconciles under way thirty seconds before it aborts them. When it returns, no task of it is left.
    ///
    /// A kind that can't be watched doesn't end it: that is logged and makes `/readyz` fail, and the controllers that need
    /// the kind start when it can.
    ///
    /// # Errors
    /// When it can't begin: no cluster, an address that is taken, two controllers of one name. And when leadership is lost:
    /// then the reconciles under way are aborted at once, since another replica may begin.
    pub async fn run_until(self, shutdown: impl IntoFuture<Output = ()>) -> Result<(), ManagerError> {
        let shutdown = shutdown.into_future();
        self.check()?;
        let metrics = self.metrics.unwrap_or_else(|| Metrics::new(self.clock.clone()));
        let client = match &self.connection {
            Connection::Client(client) => client.clone(),
            Connection::Args(args) => args.client(&metrics).await?,
        };
        let cache = Cache::new(self.namespaces, self.cache);
        let events = Broadcaster::start(client.clone(), &hostname(), self.clock.clone(), metrics.clone());
        let mut environment = Environment {
            client,
            cache,
            clock: self.clock,
            random: self.random,
            barrier_metrics: BarrierFamilies::new(metrics.registry()),
            metrics,
            events: &events,
            traces: &self.traces,
            share: Share::default(),
            concurrency: self.concurrency,
        };
        let replicas = self.replicas.resolve(&environment);
        if let Replicas::Shard(_) = replicas {
            environment.share = Share::of_a_group(environment.clock.clone());
        }
        let controllers = self.controllers.into_iter().map(|controller| controller.prepare(&environment));
        let controllers = controllers.collect::<Vec<_>>();

        add_checks(&self.probes, &environment.cache);
        let servers =
            serve(&self.probes, &self.traces, &self.probe_address, &environment.metrics, &self.metrics_address).await?;
        let surroundings = Surroundings {
            client: &environment.client,
            clock: &environment.clock,
            metrics: &environment.metrics,
            readyz: &self.probes.readyz,
        };
        let webhooks = match self.webhook_server.filter(|_| !self.webhooks.is_empty()) {
            Some(server) => webhook::Running::start(self.webhooks, server, surroundings).await?,
            None => None,
        };
        let mut watches = JoinSet::new();
        let families = CacheFamilies::new(environment.metrics.registry());
        environment.cache.start(&environment.client, &environment.random, &families, &mut watches);
        let result = match Tenure::start(replicas, &environment) {
            Err(error) => Err(error),
            Ok(Some(tenure)) => tenure.work(controllers, shutdown).await,
            Ok(None) => {
                work(controllers, shutdown, &CancellationToken::new()).await;
                Ok(())
            }
        };
        watches.shutdown().await;
        events.shutdown(EVENT_GRACE).await;
        if let Some(webhooks) = webhooks {
            webhooks.shutdown().await;
        }
        for server in servers {
            server.shutdown().await;
        }
        info!("stopped");
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
        let mut paths = BTreeSet::new();
        for path in self.webhooks.iter().map(|webhook| &webhook.description.path) {
            if !path.starts_with('/') || path.contains(['{', '}', ' ', '?', '#']) {
                return Err(ManagerError::BadPath(path.clone()));
            }
            if !paths.insert(path) {
                return Err(ManagerError::SamePath(path.clone()));
            }
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

/// A lease that has to be held while controllers work.
struct Tenure {
    lease: String,
    /// Work may begin.
    begun: CancellationToken,
    /// It must end at once.
    lost: CancellationToken,
    holding: Holding,
}

enum Holding {
    Leadership(LeaderElection),
    Membership(Membership),
}

impl Tenure {
    /// Starts to try for the lease; none if none is needed.
    fn start(replicas: Replicas, environment: &Environment<'_>) -> Result<Option<Self>, ManagerError> {
        let Environment { client, clock, random, metrics, share, .. } = environment;
        let (client, clock, random) = (client.clone(), clock.clone(), random.clone());
        Ok(match replicas {
            Replicas::Alone | Replicas::Args { .. } => None,
            Replicas::Lead(options) => {
                let lease = format!("{}/{}", options.namespace, options.name);
                let election = LeaderElection::start(client, options, clock, random, metrics.clone())?;
                let (begun, lost) = (election.elected(), election.lost());
                Some(Self { lease, begun, lost, holding: Holding::Leadership(election) })
            }
            Replicas::Shard(options) => {
                let lease = format!("{}/{}", options.namespace, options.own_lease().name);
                let membership = Membership::start(client, options, share.clone(), clock, random, metrics)?;
                let (begun, lost) = (membership.joined(), membership.lost());
                Some(Self { lease, begun, lost, holding: Holding::Membership(membership) })
            }
        })
    }

    /// Waits for the lease, works, and gives it back.
    async fn work(self, controllers: Vec<Prepared>, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        let Self { lease, begun, lost, holding } = self;
        let mut shutdown = std::pin::pin!(shutdown);
        let has_begun = tokio::select! {
            biased;
            () = &mut shutdown => false,
            () = lost.cancelled() => false,
            () = begun.cancelled() => true,
        };
        if has_begun {
            work(controllers, shutdown, &lost).await;
        }
        let is_lost = lost.is_cancelled();
        match holding {
            Holding::Leadership(election) => {
                election.release().await;
                if is_lost { Err(ManagerError::LeadershipLost(lease)) } else { Ok(()) }
            }
            Holding::Membership(membership) => {
                membership.release().await;
                if is_lost { Err(ManagerError::ShardLost(lease)) } else { Ok(()) }
            }
        }
    }
}

/// Runs the controllers until `shutdown`, and until they have drained; or until the leadership is lost, when there is no
/// time for that.
async fn work(controllers: Vec<Prepared>, shutdown: impl Future<Output = ()>, lost: &CancellationToken) {
    let stop = CancellationToken::new();
    let controllers = controllers.into_iter().map(|controller| controller.run(stop.clone(), lost.clone()));
    let mut running = controllers.collect::<JoinSet<_>>();
    tokio::select! {
        biased;
        () = lost.cancelled() => {}
        () = shutdown => info!("stopping"),
    }
    stop.cancel();
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            error!(%error, "a controller ended badly");
        }
    }
}

/// The manager's own checks: that it answers, and that its caches are filled.
fn add_checks(probes: &Probes, cache: &Cache) {
    probes.healthz.add("ping", || async { Ok(()) });
    let cache = cache.clone();
    probes.readyz.add("caches", move || {
        let unsynced = cache.unsynced();
        async move { if unsynced.is_empty() { Ok(()) } else { Err(NotSynced(unsynced).to_string()) } }
    });
}

async fn serve(
    probes: &Probes,
    traces: &Traces,
    probe_address: &BindAddress,
    metrics: &Metrics,
    metrics_address: &BindAddress,
) -> Result<Vec<Server>, BindError> {
    let router = probes.router().merge(probe::traces_router(traces.clone()));
    let probes = Server::start("probes", "--health-probe-bind-address", probe_address, router).await?;
    let router = probe::metrics_router(metrics.clone());
    let metrics = Server::start("metrics", "--metrics-bind-address", metrics_address, router).await?;
    Ok(probes.into_iter().chain(metrics).collect())
}
