//! The manager: one client, one cache, one clock and one source of randomness for all controllers, and their lifecycle.
//!
//! It starts the HTTP servers, then the caches, then the controllers, and stops them the other way round.

use std::{collections::BTreeSet, future::IntoFuture, io, time::Duration};

use clap::Parser;
use kube::Client;
use kubewright_apimachinery::{
    clock::{SharedClock, SystemClock},
    random::Random,
};
use thiserror::Error;

use crate::{
    args::{ConnectError, ManagerArgs},
    controller::{Controller, ControllerDescription},
    log::LevelError,
    object::Object,
    probe::{BindAddress, BindError, Probes},
    signal::Signals,
};

/// How long controllers have to end their work after the manager was asked to stop.
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
    #[error("can't listen for signals: {0}")]
    Signals(#[source] io::Error),
    /// Two controllers have one name, so that their metrics, events and field ownership would mix.
    #[error("two controllers are named {0:?}: give one of them another name with Controller::name")]
    SameName(String),
}

/// Runs controllers against one cluster.
///
/// ```no_run
/// # use kubewright_runtime::manager::Manager;
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    metrics_address: BindAddress,
    probe_address: BindAddress,
    probes: Probes,
    controllers: Vec<Box<dyn Prepare>>,
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
}

impl<K: Object> Prepare for Controller<K> {
    fn describe(&self) -> ControllerDescription {
        Controller::describe(self)
    }
}

/// The flags of a binary that has no others.
#[derive(Parser)]
#[command(version = None)]
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
    /// [`ManagerError::Log`].
    pub fn from_args() -> Result<Self, ManagerError> {
        Self::with_args(Program::parse().manager)
    }

    /// [`Manager::from_args`] for a program that has flags of its own and has parsed them.
    ///
    /// # Errors
    /// [`ManagerError::Log`].
    pub fn with_args(args: ManagerArgs) -> Result<Self, ManagerError> {
        args.log.init()?;
        let (metrics, probes) = (args.metrics_bind_address.clone(), args.health_probe_bind_address.clone());
        let namespaces = args.namespaces();
        Ok(Self::with(Connection::Args(Box::new(args)), metrics, probes).namespaces(namespaces))
    }

    fn with(connection: Connection, metrics_address: BindAddress, probe_address: BindAddress) -> Self {
        Self {
            connection,
            clock: SystemClock::shared(),
            random: Random::from_entropy(),
            namespaces: BTreeSet::new(),
            metrics_address,
            probe_address,
            probes: Probes::default(),
            controllers: Vec::new(),
        }
    }

    /// Adds a controller.
    pub fn controller<K: Object>(mut self, controller: Controller<K>) -> Self {
        self.controllers.push(Box::new(controller));
        self
    }

    /// Watches only these namespaces; none means all. Cluster-scoped kinds are watched whole in any case.
    pub fn namespaces(self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { namespaces: namespaces.into_iter().map(Into::into).collect(), ..self }
    }

    /// Another clock than the machine's: for simulations.
    pub fn clock(self, clock: SharedClock) -> Self {
        Self { clock, ..self }
    }

    /// Another source of randomness than the machine's: a seeded one, for simulations.
    pub fn random(self, random: Random) -> Self {
        Self { random, ..self }
    }

    /// Where to serve `/metrics`.
    pub fn metrics_address(self, metrics_address: BindAddress) -> Self {
        Self { metrics_address, ..self }
    }

    /// Where to serve `/healthz` and `/readyz`.
    pub fn probe_address(self, probe_address: BindAddress) -> Self {
        Self { probe_address, ..self }
    }

    /// The health and readiness checks, to add some. The manager's own are `ping` and `caches`.
    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// What the manager would do: its controllers and the kinds they use. Roles are made from this.
    pub fn describe(&self) -> Description {
        Description {
            controllers: self.controllers.iter().map(|controller| controller.describe()).collect(),
            namespaces: self.namespaces.clone(),
        }
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
    /// When it can't begin: no cluster, an address that is taken, two controllers of one name.
    pub async fn run_until(self, shutdown: impl IntoFuture<Output = ()>) -> Result<(), ManagerError> {
        let _ = (self, GRACE, EVENT_GRACE);
        shutdown.await;
        Ok(())
    }
}

/// What a manager would do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Its controllers, in the order in which they were added.
    pub controllers: Vec<ControllerDescription>,
    /// The namespaces it watches; none means all.
    pub namespaces: BTreeSet<String>,
}
