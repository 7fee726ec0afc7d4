//! A scenario: an operator, and a function that plays its user.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::future::LocalBoxFuture;
use kubewright_cluster::Pods;
use kubewright_runtime::manager::Manager;

use crate::{prepared::Prepared, sim::Sim};

/// The real time in which a test searches, if nothing else is said.
const DEFAULT_TIME: Duration = Duration::from_secs(10);

/// A function that adds an operator to a manager.
pub type Register = fn(Manager) -> Manager;

type User = Arc<dyn for<'a> Fn(&'a Sim) -> LocalBoxFuture<'a, ()> + Send + Sync>;

/// An operator, and a function that plays its user.
#[derive(Clone)]
pub struct Scenario {
    pub(crate) name: String,
    pub(crate) register: Register,
    pub(crate) user: User,
    pub(crate) options: Options,
    /// What runs begin with, since the first one.
    pub(crate) prepared: Arc<OnceLock<Prepared>>,
}

/// The options of a scenario.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How the node runs pods. Defaults to [`Pods::Simulate`].
    pub pods: Pods,
    /// The oracles that are left out, with the reason.
    pub omitted: BTreeMap<String, String>,
    /// The number of replicas, which elect a leader if there are several. Defaults to 1.
    pub replicas: usize,
    /// Whether the replicas divide the objects among themselves, in place of electing a leader. Defaults to false.
    pub sharded: bool,
    /// The version of the operator before an upgrade.
    pub old: Option<Register>,
    /// Whether the API server calls the operator's webhooks and conversions. Defaults to true.
    pub webhooks: bool,
    /// Whether the processes rotate the certificates of their webhooks, and the API server verifies them. Defaults to
    /// false.
    pub certificates: bool,
    /// Whether the conditions have to hold with faults of the world and the user. Defaults to false.
    pub unconditional: bool,
    /// Whether the built-in controllers of the cluster take the place of the operator. Defaults to false.
    pub controllers: bool,
    /// Whether a search tries faults. Defaults to true.
    pub faults: bool,
    /// The real time in which a test searches if no settings limit it. Defaults to ten seconds.
    pub time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pods: Pods::Simulate,
            omitted: BTreeMap::new(),
            replicas: 1,
            sharded: false,
            old: None,
            webhooks: true,
            certificates: false,
            unconditional: false,
            controllers: false,
            faults: true,
            time: DEFAULT_TIME,
        }
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Scenario {
    /// Creates a scenario. `operator` is the function that `main` passes its manager to. The cluster has the custom
    /// kinds that it declares ([`Manager::kind`]).
    pub fn new(name: &str, operator: Register, user: impl AsyncFn(&Sim) + Send + Sync + 'static) -> Self {
        let user = Arc::new(user);
        let user: User = Arc::new(move |sim| {
            let user = user.clone();
            Box::pin(async move { user(sim).await })
        });
        Self { name: name.into(), register: operator, user, options: Options::default(), prepared: Arc::default() }
    }

    /// Creates a scenario of the built-in controllers, which [`kubewright_cluster::Controllers`] names, in place of an
    /// operator: the faults are those of their requests and of the process that they run in. They get the changes of
    /// objects from the server's [feed](kubewright_apiserver::Feed) and not by watches, so no fault of events happens
    /// to them, and two processes of them never work at the same time.
    pub fn of_controllers(name: &str, user: impl AsyncFn(&Sim) + Send + Sync + 'static) -> Self {
        let mut scenario = Self::new(name, |manager| manager, user);
        scenario.options.controllers = true;
        scenario.omit("rights", "the built-in controllers act as administrators")
    }

    /// Sets how the node runs pods: [`Pods::Simulate`] or [`Pods::None`].
    pub fn pods(mut self, pods: Pods) -> Self {
        self.options.pods = pods;
        self.prepared = Arc::default();
        self
    }

    /// Leaves out the node: pods stay pending until the user writes their status.
    pub fn without_pods(self) -> Self {
        self.pods(Pods::None)
    }

    /// Leaves an [oracle](crate::oracle) out, for a reason.
    pub fn omit(mut self, oracle: &str, reason: &str) -> Self {
        self.options.omitted.insert(oracle.into(), reason.into());
        self
    }

    /// Sets the number of replicas. If there are several, they elect a leader, and the processes may take over from
    /// each other.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.options.replicas = replicas.max(1);
        self.options.sharded = false;
        self
    }

    /// Sets the number of replicas, which divide the objects among themselves by [sharding](kubewright_runtime::shard).
    /// Members of their group come and go. Of this method and [`replicas`](Self::replicas), the last call takes effect.
    pub fn shards(mut self, replicas: usize) -> Self {
        self.options.replicas = replicas.max(1);
        self.options.sharded = true;
        self
    }

    /// Begins with an older version of the operator. It is replaced after the first [`Sim::until`], or earlier by a
    /// fault.
    pub fn upgrade(mut self, old: Register) -> Self {
        self.options.old = Some(old);
        self
    }

    /// Installs no webhook configuration, and no conversion between versions. By default, the API server calls the
    /// webhooks that the operator adds to its manager. A process that is dead or paused doesn't answer; then the
    /// failure policy decides, and the user repeats a step that is refused for this reason.
    pub fn without_webhooks(mut self) -> Self {
        self.options.webhooks = false;
        self.prepared = Arc::default();
        self
    }

    /// Lets each process make and renew the certificate of its webhooks and conversions, as in a cluster: through its
    /// connection, so that faults happen to it, but every ten minutes instead of ten seconds. The API server answers a
    /// call only if it trusts the certificate of the process that is called. By default, webhooks are called without
    /// certificates.
    ///
    /// The keys are those of the seed, so they protect nothing. A year of certificates needs [`Sim::skip`].
    pub fn certificates(mut self) -> Self {
        self.options.certificates = true;
        self.prepared = Arc::default();
        self
    }

    /// States that the conditions hold also with faults of the [world](crate::fault::WorldFault), if the
    /// [user](crate::fault::UserFault) deletes an object and creates it again or changes its status, if finalizers hold
    /// its children, and if two processes work at the same time; and that what the operator has created doesn't depend
    /// on a status. They never have to hold with a deletion that leaves the children. Otherwise only the
    /// [oracles](crate::oracle) that need no word from the author look at such runs.
    pub fn unconditional(mut self) -> Self {
        self.options.unconditional = true;
        self
    }

    /// Runs the scenario without faults only, twice: its conditions say what need not hold with each of them.
    pub fn without_faults(mut self) -> Self {
        self.options.faults = false;
        self
    }

    /// Sets the real time in which a test searches if no settings limit it.
    pub fn time(mut self, time: Duration) -> Self {
        self.options.time = time;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}
