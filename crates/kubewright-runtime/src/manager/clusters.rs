//! Clusters besides the manager's own, and the controllers that work on each of them.
//!
//! A cluster is an environment of its own: a client, a cache with its watches, and a queue of events. Controllers are
//! made for each cluster and connected with its environment as [controllers that are added](super::controllers). See
//! `designs/clusters.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, error_span, info};

use super::{EVENT_GRACE, Manager, ManagerError, Prepare, controllers};
use crate::{
    cache::{Cache, CacheOptions},
    client,
    controller::{Controller, Environment},
    event::{Broadcaster, LateQueue},
    object::AnyObject,
    process::hostname,
};

/// The connection to a cluster besides the manager's own, for [`Manager::cluster`] and [`Clusters::add`].
#[derive(Clone)]
pub struct RemoteCluster {
    client: kube::Client,
    namespaces: BTreeSet<String>,
}

impl fmt::Debug for RemoteCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteCluster").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

impl RemoteCluster {
    /// A cluster with this client, whose configuration should be as [`Manager::new`] says.
    pub fn new(client: kube::Client) -> Self {
        Self { client, namespaces: BTreeSet::new() }
    }

    /// Watches only these namespaces; an empty list means all. Several namespaces of one cluster can so be treated as
    /// clusters.
    pub fn namespaces(self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { namespaces: namespaces.into_iter().map(Into::into).collect(), ..self }
    }
}

/// Brings clusters into a running manager, and takes them out. From [`Manager::clusters`]. Cheap to clone.
///
/// ```
/// # use kubewright_runtime::manager::{Clusters, ManagerError, RemoteCluster};
/// # async fn example(clusters: Clusters, client: kube::Client) -> Result<(), ManagerError> {
/// clusters.add("east", RemoteCluster::new(client)).await?;
/// assert!(clusters.client("east").is_some());
/// clusters.remove("east").await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Clusters {
    commands: mpsc::UnboundedSender<Command>,
    engaged: Engaged,
}

/// The clients of the clusters that the manager works on.
type Engaged = Arc<Mutex<BTreeMap<String, kube::Client>>>;

enum Command {
    Add(String, RemoteCluster, oneshot::Sender<Result<(), ManagerError>>),
    Remove(String, oneshot::Sender<bool>),
}

/// Makes a controller for a cluster.
type Make = Arc<dyn Fn(&str) -> Box<dyn Prepare> + Send + Sync>;

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clusters").field("names", &self.names()).finish_non_exhaustive()
    }
}

impl Clusters {
    /// Brings in a cluster: its controllers are made, and begin to fill their caches. Waits until the manager runs. A
    /// cluster that can't be reached is no error; it is tried again.
    ///
    /// # Errors
    /// [`ManagerError::SameCluster`], [`ManagerError::BadClusterName`]; [`ManagerError::ClusterEnded`] if the manager
    /// has ended or was dropped; as for [`Manager::run_until`], if the controllers that are made have the same name or
    /// index.
    pub async fn add(&self, name: &str, cluster: RemoteCluster) -> Result<(), ManagerError> {
        let (sender, added) = oneshot::channel();
        let ended = || ManagerError::ClusterEnded(name.into());
        self.commands.send(Command::Add(name.into(), cluster, sender)).map_err(|_| ended())?;
        added.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Takes out a cluster, after its reconciles have ended, or were aborted after the manager's [grace
    /// period](Manager::graceful_shutdown). Its queues, watches, cached objects, traces and metrics are gone then.
    /// Returns whether there was a cluster of that name.
    ///
    /// A reconcile in that cluster must not wait for it, since it waits for the reconcile.
    pub async fn remove(&self, name: &str) -> bool {
        let (sender, removed) = oneshot::channel();
        self.commands.send(Command::Remove(name.into(), sender)).is_ok() && removed.await.unwrap_or_default()
    }

    /// Returns the names of the clusters, in order, without the manager's own.
    pub fn names(&self) -> Vec<String> {
        self.engaged.lock().keys().cloned().collect()
    }

    /// Returns whether there is a cluster of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.engaged.lock().contains_key(name)
    }

    /// Returns a client of a cluster, for reads and writes across clusters. Reconciles don't wait for what is written
    /// by it, and it isn't bound to the lease: within a cluster use
    /// [`Context::client`](crate::context::Context::client).
    pub fn client(&self, name: &str) -> Option<client::Client> {
        self.engaged.lock().get(name).cloned().map(client::Client::new)
    }
}

/// The clusters of a manager, and what works on each of them.
#[derive(Default)]
pub(super) struct Fleet {
    fixed: Vec<(String, RemoteCluster)>,
    make: Vec<Make>,
    handle: OnceLock<(Clusters, Mutex<Option<mpsc::UnboundedReceiver<Command>>>)>,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("fixed", &self.fixed).finish_non_exhaustive()
    }
}

impl Manager {
    /// Adds a cluster besides the manager's own, by a name that is part of no other: for the controllers of
    /// [`Manager::controller_by_cluster`]. The manager's own cluster has the leases; it isn't among them.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kubewright_runtime::{controller::{Controller, Reconciler}, manager::{Manager, RemoteCluster}};
    /// # fn example(manager: Manager, east: kube::Client, west: kube::Client, copier: impl Reconciler<ConfigMap> + Clone) -> Manager {
    /// manager
    ///     .cluster("east", RemoteCluster::new(east))
    ///     .cluster("west", RemoteCluster::new(west))
    ///     .controller_by_cluster(move |_| Controller::<ConfigMap>::new(copier.clone()).name("copier"))
    /// # }
    /// ```
    pub fn cluster(mut self, name: &str, cluster: RemoteCluster) -> Self {
        self.fleet.fixed.push((name.into(), cluster));
        self
    }

    /// Adds a controller for each cluster besides the manager's own, those that come later included. `make` is called
    /// with the name of each cluster, which [`Context::cluster`](crate::context::Context::cluster) returns too.
    ///
    /// Each has its own queue, workers, barrier, cache, traces and metrics, the latter two under `name@cluster`. It
    /// runs on the leader, or for the keys of the replica, of the manager's own cluster. The roles in the other
    /// clusters aren't in [`Manager::describe`], and those clusters don't affect readiness.
    pub fn controller_by_cluster<K: AnyObject>(
        mut self,
        make: impl Fn(&str) -> Controller<K> + Send + Sync + 'static,
    ) -> Self {
        self.fleet.make.push(Arc::new(move |cluster| Box::new(make(cluster))));
        self
    }

    /// Returns the handle by which clusters come and go while the manager runs.
    pub fn clusters(&self) -> Clusters {
        self.fleet.handle().0.clone()
    }
}

impl Fleet {
    fn handle(&self) -> &(Clusters, Mutex<Option<mpsc::UnboundedReceiver<Command>>>) {
        self.handle.get_or_init(|| {
            let (commands, received) = mpsc::unbounded_channel();
            (Clusters { commands, engaged: Engaged::default() }, Mutex::new(Some(received)))
        })
    }

    /// Returns the task that works on the clusters, if there may be any.
    pub(super) fn supervisor(
        self,
        environment: &Environment,
        options: CacheOptions,
        begun: CancellationToken,
        grace: Duration,
    ) -> Option<Supervisor> {
        if self.fixed.is_empty() && self.handle.get().is_none() {
            return None;
        }
        let (Clusters { engaged, .. }, commands) = self.handle();
        let (engaged, commands) = (engaged.clone(), commands.lock().take()?);
        let base = Base { environment: environment.clone(), options, make: self.make, begun, grace };
        let (running, stops) = (JoinSet::new(), BTreeMap::new());
        Some(Supervisor { base, fixed: self.fixed, commands, engaged, running, stops })
    }
}

/// What all clusters share.
#[derive(Clone)]
struct Base {
    environment: Environment,
    options: CacheOptions,
    make: Vec<Make>,
    begun: CancellationToken,
    grace: Duration,
}

/// Works on the clusters.
pub(super) struct Supervisor {
    base: Base,
    fixed: Vec<(String, RemoteCluster)>,
    commands: mpsc::UnboundedReceiver<Command>,
    engaged: Engaged,
    running: JoinSet<(String, Result<(), ManagerError>)>,
    /// What ends the work on each cluster, and those who wait for the end.
    stops: BTreeMap<String, (CancellationToken, Vec<oneshot::Sender<bool>>)>,
}

impl Supervisor {
    /// Runs until `stop`, then until the work on all clusters has ended.
    pub(super) async fn run(mut self, stop: CancellationToken, abort: CancellationToken) -> Result<(), ManagerError> {
        for (name, cluster) in std::mem::take(&mut self.fixed) {
            self.add(&name, cluster, &stop, &abort)?;
        }
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.running.join_next() => self.ended(ended)?,
                Some(command) = self.commands.recv() => match command {
                    Command::Add(name, cluster, answer) => {
                        // Whoever asked may not wait for the answer.
                        let _ = answer.send(self.add(&name, cluster, &stop, &abort));
                    }
                    Command::Remove(name, answer) => self.remove(&name, answer),
                },
            }
        }
        // Callers that asked too late get an error: they may be what is waited for.
        self.commands.close();
        while self.commands.try_recv().is_ok() {}
        while let Some(ended) = self.running.join_next().await {
            self.ended(ended)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        name: &str,
        cluster: RemoteCluster,
        stop: &CancellationToken,
        abort: &CancellationToken,
    ) -> Result<(), ManagerError> {
        if name.is_empty() || name.contains(['/', '@', '?', '#']) || name.contains(char::is_whitespace) {
            return Err(ManagerError::BadClusterName(name.into()));
        }
        if self.stops.contains_key(name) {
            return Err(ManagerError::SameCluster(name.into()));
        }
        let stop = stop.child_token();
        let span = error_span!("cluster", cluster = name);
        let work = span.in_scope(|| engage(name, &cluster, &self.base, &stop, abort))?;
        self.engaged.lock().insert(name.into(), cluster.client);
        self.stops.insert(name.into(), (stop, Vec::new()));
        let name = name.to_owned();
        self.running.spawn(async move { (name, work.await) }.instrument(span));
        Ok(())
    }

    fn remove(&mut self, name: &str, answer: oneshot::Sender<bool>) {
        match self.stops.get_mut(name) {
            Some((stop, waiting)) => {
                stop.cancel();
                waiting.push(answer);
            }
            None => {
                let _ = answer.send(false);
            }
        }
    }

    fn ended(&mut self, ended: Result<(String, Result<(), ManagerError>), JoinError>) -> Result<(), ManagerError> {
        let (name, result) = ended.map_err(ManagerError::Task)?;
        self.engaged.lock().remove(&name);
        let (_, waiting) = self.stops.remove(&name).unwrap_or_default();
        info!(cluster = name, "no longer working on the cluster");
        for answer in waiting {
            // Whoever asked may not wait for the answer.
            let _ = answer.send(true);
        }
        result
    }
}

/// Connects controllers with a cluster. Returns what runs them until `stop`.
fn engage(
    name: &str,
    cluster: &RemoteCluster,
    base: &Base,
    stop: &CancellationToken,
    abort: &CancellationToken,
) -> Result<impl Future<Output = Result<(), ManagerError>> + Send + use<>, ManagerError> {
    let Environment { clock, random, metrics, cache_metrics, .. } = &base.environment;
    let client = client::outgoing(&cluster.client, &base.environment.agent, None, &base.environment.clock);
    let cache = Cache::new(cluster.namespaces.clone(), base.options.clone());
    let events = LateQueue::default();
    let environment = base.environment.of_cluster(name, client.clone(), cache.clone(), events.clone());
    let (begun, grace) = (base.begun.clone(), base.grace);
    let mut controllers = controllers::Supervisor::new(environment, BTreeMap::new(), begun, grace);
    for make in &base.make {
        controllers.add(make(name), stop, abort)?;
    }
    let broadcaster = Broadcaster::start_for(events, client.clone(), &hostname(), clock.clone(), metrics.clone());
    let watches = cache.start(&client, random, cache_metrics.of_cluster(name), Span::current());
    info!("working on the cluster");
    let (stop, abort) = (stop.clone(), abort.clone());
    Ok(async move {
        let result = controllers.run(stop, abort).await;
        watches.shutdown().await;
        broadcaster.shutdown(EVENT_GRACE).await;
        result
    })
}
