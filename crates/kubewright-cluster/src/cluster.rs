//! The cluster as a whole: what it is made of, how it starts, and how nothing of it is left.

use std::{fmt, net::SocketAddr, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use kubewright_apimachinery::{
    clock::{SharedClock, SystemClock},
    random::Random,
};
use kubewright_apiserver::{ApiServer, ListenError, ListenOptions};
use parking_lot::Mutex;
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::task::TaskTracker;

use crate::{
    access::Access,
    controllers::{
        accounts,
        aggregation::Aggregation,
        deletion,
        deployment::Deployments,
        endpoints::Endpoints,
        entrance, expiry, garbage,
        job::Jobs,
        reconcile::{self, Controller},
        replicaset::ReplicaSets,
        scheduler,
    },
    doors::{Doors, Endpoint},
    events::Recorder,
    node::{
        self, Host, ImageTable, NODE_NAME, WRITES,
        address::Addresses,
        home::{self, Home},
        log::LogAction,
        logs::Logs,
        object::{self, Capacity},
        process::{Processes, raise_open_files},
        proxy,
        simulation::{FinishError, Simulation},
    },
};

/// What becomes of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pods {
    /// They run as processes of this host, from the [`ImageTable`]. This needs the machine's clock, and raises this
    /// process's limit of open files to what the host allows.
    #[default]
    Run,
    /// They become running and ready without a process, and stay so until they are deleted or told to end by
    /// [`Cluster::finish_pod`]. Nothing but time passes, so this works on a paused clock. There are no events about such
    /// pods, and the node's lease is not renewed.
    Simulate,
    /// There is no node: they stay pending.
    None,
}

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no place for the pods' files.
    #[error("could not make a directory for the pods")]
    Directory(#[source] std::io::Error),
    /// The node could not be registered.
    #[error("could not register the node")]
    Register(#[source] kube::Error),
}

/// Says how a cluster is to be. The defaults are: pods run, the machine's clock, randomness from the operating system,
/// and the [`ImageTable`]'s default images.
#[derive(Debug, Default)]
pub struct ClusterBuilder {
    pods: Pods,
    clock: Option<SharedClock>,
    random: Option<Random>,
    images: ImageTable,
    simulated_start: Duration,
    history: Option<usize>,
}

impl ClusterBuilder {
    /// What becomes of pods.
    pub fn pods(mut self, pods: Pods) -> Self {
        self.pods = pods;
        self
    }

    /// Where time is read. Waiting is tokio's, so a virtual clock belongs on a runtime whose time is paused.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Where UIDs and generated names come from.
    pub fn random(mut self, random: Random) -> Self {
        self.random = Some(random);
        self
    }

    /// Which programs play which images, with [`Pods::Run`].
    pub fn images(mut self, images: ImageTable) -> Self {
        self.images = images;
        self
    }

    /// How long a simulated pod stays pending; none by default.
    pub fn simulated_start(mut self, delay: Duration) -> Self {
        self.simulated_start = delay;
        self
    }

    /// How many changes the API server keeps for watchers. Whoever falls behind further has to begin anew: a small number
    /// shows how an operator, or this cluster's own controllers, take that.
    pub fn history(mut self, changes: usize) -> Self {
        self.history = Some(changes);
        self
    }

    /// Starts the cluster, in a few milliseconds. When this returns, the API answers and the node is registered; the default
    /// ServiceAccounts follow at once.
    ///
    /// Call it inside a tokio runtime, which all of the cluster's tasks then run on. With [`Pods::Run`] the runtime needs
    /// its I/O driver.
    ///
    /// # Errors
    /// When there is no temporary directory to be had.
    pub async fn start(self) -> Result<Cluster, StartError> {
        let clock = self.clock.unwrap_or_else(SystemClock::shared);
        let random = self.random.unwrap_or_else(Random::from_entropy);
        let logs = Logs::default();
        let mut api = ApiServer::builder().clock(clock.clone()).random(random.clone());
        if let Some(changes) = self.history {
            api = api.history(changes);
        }
        if self.pods != Pods::None {
            let action = Arc::new(LogAction::new(logs.clone(), clock.clone()));
            api = api.action("", "v1", "pods", "log", action);
        }
        let api = api.build();
        let mut cluster = Cluster {
            api: api.clone(),
            tasks: Mutex::default(),
            tracker: TaskTracker::new(),
            processes: Processes::new(random.uuid()),
            simulation: None,
            doors: Doors::new(api.clone()),
            home: None,
        };
        cluster.start_controllers(&clock, &random);
        match self.pods {
            Pods::None => {}
            Pods::Run => {
                let capacity = Capacity::of_host();
                cluster.register(&clock, capacity).await?;
                cluster.start_node(&clock, &random, self.images, logs, capacity)?;
            }
            Pods::Simulate => {
                cluster.register(&clock, Capacity::simulated()).await?;
                let access = cluster.access("kubelet");
                let simulation = Simulation::new(access, clock.clone(), self.simulated_start);
                cluster.spawn(simulation.clone().run(api.clone()));
                cluster.simulation = Some(simulation);
                cluster.spawn(scheduler::run(api, cluster.access("kube-scheduler"), clock, None));
            }
        }
        Ok(cluster)
    }
}

/// An embedded cluster: an API server, the built-in controllers, and a node.
///
/// Dropping it leaves no process, port, file or task: processes are killed before the drop returns, and tasks end as soon as
/// the runtime gets to them. [`Cluster::shutdown`] waits for them, too.
pub struct Cluster {
    api: ApiServer,
    tasks: Mutex<JoinSet<()>>,
    /// All tasks, those that tasks have spawned included.
    tracker: TaskTracker,
    processes: Processes,
    simulation: Option<Simulation>,
    doors: Doors,
    home: Option<Home>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("api", &self.api).field("tasks", &self.tracker.len()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Begins to describe a cluster.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// A client in this process, without a socket, that may do everything.
    pub fn client(&self) -> kube::Client {
        self.api.client()
    }

    /// The API server.
    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    /// Lets others reach the API server, by TLS on a loopback address; port 0 stands for any free one. The cluster listens
    /// until it ends. Without this call it does, on a port of its own choice, as soon as a pod runs whose service account's
    /// token is mounted.
    ///
    /// # Errors
    /// When the address can't be had.
    pub async fn listen(&self, address: SocketAddr) -> Result<Endpoint, ListenError> {
        self.listen_with(ListenOptions::from(address)).await
    }

    /// As [`Cluster::listen`], with all options.
    ///
    /// # Errors
    /// When the address can't be had, or others could reach it and that isn't allowed.
    pub async fn listen_with(&self, options: ListenOptions) -> Result<Endpoint, ListenError> {
        self.doors.open(options).await
    }

    /// With [`Pods::Simulate`]: ends the main containers of a running pod with an exit code. As with real pods, the restart
    /// policy says whether the pod has succeeded or failed by that, or runs on with a higher restart count (the back-off is
    /// left out).
    ///
    /// # Errors
    /// When there is no such pod, or it isn't running, or pods aren't simulated.
    pub async fn finish_pod(&self, namespace: &str, name: &str, exit_code: i32) -> Result<(), FinishError> {
        match &self.simulation {
            Some(simulation) => simulation.finish(namespace, name, exit_code).await,
            None => Err(FinishError::NotSimulated),
        }
    }

    /// Ends everything and waits until it has ended.
    pub async fn shutdown(mut self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
        self.close_processes();
        self.tracker.close();
        self.tracker.wait().await;
        for listener in self.doors.take() {
            listener.shutdown().await;
        }
        drop(self.home.take());
    }

    fn access(&self, component: &str) -> Access {
        Access::new(self.api.client_as(component))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let told = AssertUnwindSafe(task).catch_unwind().map(|ended| {
            if let Err(panic) = ended {
                let said = panic.downcast_ref::<String>().map(String::as_str);
                let message = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
                tracing::error!(message, "a part of the cluster has panicked and is gone");
            }
        });
        self.tasks.lock().spawn(self.tracker.track_future(told));
    }

    fn recorder(&self, component: &'static str, host: &'static str, clock: &SharedClock) -> Recorder {
        let (recorder, task) = Recorder::new(component, host, self.access(component), clock.clone());
        self.spawn(task);
        recorder
    }

    fn start_controllers(&self, clock: &SharedClock, random: &Random) {
        const MANAGER: &str = "kube-controller-manager";
        let (api, access) = (&self.api, self.access(MANAGER));
        let events = self.recorder("garbage-collector-controller", "", clock);
        self.spawn(garbage::run(api.clone(), access.clone(), clock.clone(), events));
        self.spawn(deletion::run(api.clone(), access.clone(), clock.clone()));
        self.spawn(expiry::run(self.api.client_as(MANAGER), clock.clone()));
        self.spawn(entrance::run(api.clone(), access.clone(), clock.clone(), self.doors.address()));
        self.spawn(accounts::run(api.clone(), access, clock.clone(), self.doors.certificate()));
        self.control("clusterrole-aggregation-controller", clock, Aggregation::default());
        self.control("deployment-controller", clock, Deployments::default());
        self.control("endpoint-slice-controller", clock, Endpoints::new(random.clone()));
        self.control("job-controller", clock, Jobs::default());
        self.control("replicaset-controller", clock, ReplicaSets::default());
    }

    /// Runs one of the controllers that share a loop.
    fn control(&self, name: &'static str, clock: &SharedClock, controller: impl Controller + 'static) {
        let events = self.recorder(name, "", clock);
        let access = self.access("kube-controller-manager");
        self.spawn(reconcile::run(self.api.clone(), access, clock.clone(), events, controller));
    }

    async fn register(&self, clock: &SharedClock, capacity: Capacity) -> Result<(), StartError> {
        let version = self.client().apiserver_version().await.map_err(StartError::Register)?;
        let access = self.access("kubelet");
        object::register(&access, clock, capacity, &version.git_version).await.map_err(StartError::Register)
    }

    fn start_node(
        &mut self,
        clock: &SharedClock,
        random: &Random,
        images: ImageTable,
        logs: Logs,
        capacity: Capacity,
    ) -> Result<(), StartError> {
        raise_open_files();
        let root = std::env::temp_dir();
        let home = Home::new(&root, &self.processes.id()).map_err(StartError::Directory)?;
        self.tracker.spawn_blocking(move || home::sweep(&root));
        let host = Host {
            access: self.access("kubelet"),
            clock: clock.clone(),
            random: random.clone(),
            images,
            processes: self.processes.clone(),
            addresses: Addresses::from_somewhere(random),
            logs,
            events: self.recorder("kubelet", NODE_NAME, clock),
            server: self.doors.address(),
            doors: self.doors.clone(),
            services: Default::default(),
            capacity,
            writes: Semaphore::new(WRITES),
            directory: home.path().to_owned(),
            tasks: self.tracker.clone(),
        };
        self.home = Some(home);
        let events = self.recorder("default-scheduler", "", clock);
        self.spawn(node::run(self.api.clone(), Arc::new(host)));
        let told = self.recorder("kube-proxy", NODE_NAME, clock);
        self.spawn(proxy::run(self.api.clone(), clock.clone(), told, self.tracker.clone()));
        self.spawn(object::renew(self.access("kubelet"), clock.clone()));
        let access = self.access("kube-scheduler");
        self.spawn(scheduler::run(self.api.clone(), access, clock.clone(), Some(events)));
        Ok(())
    }

    /// Kills all processes; none starts after.
    fn close_processes(&self) {
        self.processes.close();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.tasks.lock().abort_all();
        self.close_processes();
        drop(self.doors.take());
        drop(self.home.take());
    }
}
