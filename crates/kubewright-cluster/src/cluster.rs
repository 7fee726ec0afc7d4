//! The cluster as a whole: its parts, their start, and their shutdown.

use std::{
    fmt,
    fs::DirBuilder,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use kubewright_apimachinery::{
    clock::{SharedClock, SystemClock},
    random::Random,
};
use kubewright_apiserver::{
    ApiServer, ApiServerBuilder, AuditLog, Checkpoint, DataDirError, Durability, ListenError, ListenOptions,
    ResourceMetrics, ResourceUsage, ServiceRange, TlsError, WebhookTransport,
};
use parking_lot::Mutex;
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::task::TaskTracker;

use crate::{
    api_endpoints::{ApiEndpoints, Endpoint},
    component::{self, KIND_TERMINATOR},
    controllers::{
        api_services, deletion, event_ttl,
        informer::Informer,
        kubernetes_service,
        manager::{ControllerManager, VOLUMES},
        scheduler,
        selection::Controllers,
        volume_binder::{self, Volumes},
    },
    events::Recorder,
    node::{
        self, ImageTable, KUBELET_PORT, NODE_NAME, NodeContext, PodNetwork, WRITES,
        address::HOST_ADDRESS,
        devices::Devices,
        exec::{Connection, ConnectionAction, RunningContainers},
        hosts::Hosts,
        kubelet_api::KubeletApi,
        log::{LogAction, LogStore},
        network::NodeNetwork,
        node_directory::{self, NodeDirectory},
        object::{self, Capacity},
        pods::NodePods,
        process::{Processes, raise_open_files, stop_ignoring_terminal_signals},
        proxy::{self, ProxyNetwork},
        simulation::{FinishError, Simulation},
        usage::{self, HostUsage, SimulatedUsage, UsageTotals},
        view,
    },
    object_client::{ObjectClient, is_conflict},
    panics,
};

/// The controller that empties namespaces.
const NAMESPACES: &str = "namespace-controller";
/// The folder of the volumes of simulated pods. It isn't created, since no process uses it.
const SIMULATED_VOLUMES: &str = "/var/lib/kubewright/volumes";

/// The directory of Linux's file system in memory.
const MEMORY: &str = "/dev/shm";

/// The file of the data directory that contains the address of the server.
const ADDRESS: &str = "address";

/// The way in which the node runs pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pods {
    /// Pods run as processes of this host, from the [`ImageTable`]. This needs the system clock, and raises this
    /// process's limit of open files to the host's maximum.
    #[default]
    Run,
    /// Pods become running and ready without a process, and stay so until they are deleted or until
    /// [`Cluster::finish_pod`] ends them. This only requires time to pass, so it works on a paused clock. No events are
    /// recorded for these pods, and the node's lease is not renewed.
    Simulate,
    /// The cluster has no node: pods stay pending.
    None,
}

/// An error that prevents a cluster from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The directory for the pods' files can't be created.
    #[error("failed to create a directory for the pods")]
    Directory(#[source] std::io::Error),
    /// The data directory can't be opened.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The node can't be registered.
    #[error("failed to register the node")]
    Register(#[source] kube::Error),
    /// The storage class can't be created.
    #[error("failed to create the storage class")]
    StorageClass(#[source] kube::Error),
    /// The host can't make [network namespaces](PodNetwork::Namespaces) for pods.
    #[error("failed to create network namespaces for pods: {0}")]
    PodNetwork(String),
    /// The host can't [isolate containers](ClusterBuilder::isolate_containers).
    #[error("failed to isolate containers: {0}")]
    Isolation(String),
}

/// The controller that creates the default service accounts.
const ACCOUNT_CONTROLLER: &str = "serviceaccount-controller";

/// Builder of a [`Cluster`]. By default, pods run as processes, the clock is the system clock, randomness comes from
/// the operating system, and the images are those of [`ImageTable::default`].
#[derive(Debug, Default)]
pub struct ClusterBuilder {
    pods: Pods,
    pod_network: PodNetwork,
    isolates_containers: bool,
    clock: Option<SharedClock>,
    random: Option<Random>,
    images: ImageTable,
    simulated_start: Duration,
    history: Option<usize>,
    controllers: Controllers,
    service_account_admission: Option<bool>,
    node_authorization: Option<bool>,
    node_restriction: Option<bool>,
    api: ApiServerBuilder,
    has_checkpoint: bool,
    data_dir: Option<PathBuf>,
}

impl ClusterBuilder {
    /// Sets how the node runs pods.
    pub fn pods(mut self, pods: Pods) -> Self {
        self.pods = pods;
        self
    }

    /// Sets the network of the pods that run as processes. Defaults to [`PodNetwork::Host`].
    ///
    /// ```no_run
    /// # use kubewright_cluster::{Cluster, PodNetwork};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::builder().pod_network(PodNetwork::Namespaces).start().await?;
    /// # cluster.shutdown().await; Ok(()) }
    /// ```
    pub fn pod_network(mut self, network: PodNetwork) -> Self {
        self.pod_network = network;
        self
    }

    /// Gives each container that runs as a process a file system and processes of its own, as in Kubernetes. Off by default: containers then write
    /// the files of this machine, and see its processes.
    ///
    /// A container starts with the files of this machine. What it writes outside of its volumes is visible to this container only, and is
    /// removed when it ends or restarts. It may not see files that others change on this machine while it runs; volumes are shared as usual. Its program has the
    /// process ID 1: Linux ignores SIGTERM for it unless it has a handler, so it is killed after the grace period. With
    /// `shareProcessNamespace`, the containers of a pod share a process namespace, and an ephemeral container shares that of its `targetContainerName`. Containers of
    /// pods with `hostPID` see the processes of the machine.
    ///
    /// An `emptyDir` in memory is a file system of its own with the size that a kubelet gives it, which the node mounts on this machine. It is
    /// unmounted with its pod or, if this process is killed, when the next cluster starts; without isolation, the mounts of the
    /// machine don't change, and such a directory is one of `/dev/shm` without a limit of its own.
    ///
    /// Requires Linux 5.10, root, and the programs `mount`, `nsenter` and `unshare` (of util-linux). The directory of the
    /// node, which is in the temporary directory, can't be on an overlay itself, as the files of most containers are.
    pub fn isolate_containers(mut self, isolates: bool) -> Self {
        self.isolates_containers = isolates;
        self
    }

    /// Sets the clock. Waiting uses tokio's timers, so a virtual clock requires a runtime whose time is paused.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the source of UIDs and generated names.
    pub fn random(mut self, random: Random) -> Self {
        self.random = Some(random);
        self
    }

    /// Sets the programs that run in place of images. Only used with [`Pods::Run`].
    pub fn images(mut self, images: ImageTable) -> Self {
        self.images = images;
        self
    }

    /// Sets how long a simulated pod stays pending. Defaults to zero.
    pub fn simulated_start(mut self, delay: Duration) -> Self {
        self.simulated_start = delay;
        self
    }

    /// Sets the number of changes that the API server keeps for watchers. A watcher that falls further behind has to
    /// list again, so a small number tests how an operator, or this cluster's own controllers, recover from that.
    pub fn history(mut self, changes: usize) -> Self {
        self.history = Some(changes);
        self
    }

    /// Selects the controllers. Defaults to all.
    pub fn controllers(mut self, controllers: Controllers) -> Self {
        self.controllers = controllers;
        self
    }

    /// Runs the API server alone, as envtest does: no controllers and no node, so that nothing but the test writes. Objects of
    /// built-in kinds stay as they are written, namespaces are never emptied, and children outlive their owners.
    pub fn api_only(self) -> Self {
        self.controllers(Controllers::none()).pods(Pods::None)
    }

    /// Sets the issuer of service account tokens; see [`ApiServerBuilder::service_account_issuer`].
    pub fn service_account_issuer(mut self, issuer: impl Into<String>) -> Self {
        self.api = self.api.service_account_issuer(issuer);
        self
    }

    /// Sets the key that signs service account tokens; see [`ApiServerBuilder::service_account_key`].
    ///
    /// # Errors
    /// If the key can't be used.
    pub fn service_account_key(mut self, pem: &str) -> Result<Self, TlsError> {
        self.api = self.api.service_account_key(pem)?;
        Ok(self)
    }

    /// Sets whether pods are admitted by their service accounts; see [`ApiServerBuilder::service_account_admission`]. Defaults
    /// to whether `serviceaccount-controller` is among the controllers.
    pub fn service_account_admission(mut self, enabled: bool) -> Self {
        self.service_account_admission = Some(enabled);
        self
    }

    /// Sets whether nodes are authorized by their pods; see [`ApiServerBuilder::node_authorization`]. Defaults to true, as with kubeadm.
    pub fn node_authorization(mut self, enabled: bool) -> Self {
        self.node_authorization = Some(enabled);
        self
    }

    /// Sets whether the changes of nodes are limited to themselves and their pods; see [`ApiServerBuilder::node_restriction`]. Defaults to true,
    /// as with kubeadm. The cluster's own node isn't limited.
    pub fn node_restriction(mut self, enabled: bool) -> Self {
        self.node_restriction = Some(enabled);
        self
    }

    /// Records requests in an audit log; see [`ApiServerBuilder::audit_log`]. Defaults to none.
    pub fn audit_log(mut self, log: AuditLog) -> Self {
        self.api = self.api.audit_log(log);
        self
    }

    /// Sets the range that addresses of services are allocated from; see [`ApiServerBuilder::service_range`]. A node listens on the addresses of services, and so
    /// needs those of the loopback network.
    pub fn service_range(mut self, range: ServiceRange) -> Self {
        self.api = self.api.service_range(range);
        self
    }

    /// Sets the interval at which watches get bookmarks; see [`ApiServerBuilder::bookmark_interval`].
    pub fn bookmark_interval(mut self, interval: Duration) -> Self {
        self.api = self.api.bookmark_interval(interval);
        self
    }

    /// Calls all webhooks through a transport within the process; see [`ApiServerBuilder::webhook_transport`].
    pub fn webhook_transport(mut self, transport: Arc<dyn WebhookTransport>) -> Self {
        self.api = self.api.webhook_transport(transport);
        self
    }

    /// Starts with the objects of another cluster with the same settings, which takes less time than to create them: the node, the
    /// storage class, custom kinds, and whatever else was there; see [`Cluster::checkpoint`]. What its controllers hadn't done, this one's do.
    /// Has no effect with a [data directory](Self::data_dir).
    pub fn checkpoint(mut self, checkpoint: &Checkpoint) -> Self {
        self.api = self.api.checkpoint(checkpoint);
        self.has_checkpoint = true;
        self
    }

    /// Keeps the cluster in a directory, which is created if it doesn't exist: its objects, credentials, and the folders of
    /// persistent volumes. By default, a cluster is in memory and ends with its process. See [`ApiServerBuilder::open`] for
    /// what is kept and when.
    ///
    /// When a cluster starts with an existing directory, the node treats its pods like a kubelet after a restart of its
    /// machine: the containers have ended with code 137, and are restarted by the restart policy of their pod. Logs and
    /// volumes of pods, other than persistent ones, are not kept.
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// Sets what an answered change survives if the cluster has a [data directory](Self::data_dir). Defaults to
    /// [`Durability::Process`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.api = self.api.durability(durability);
        self
    }

    /// Starts the cluster, which takes a few milliseconds. When this returns, the API server answers and the node is
    /// registered. The default ServiceAccounts are created shortly afterwards,
    /// if `serviceaccount-controller` is among the controllers.
    ///
    /// Must be called within a tokio runtime, on which all tasks of the cluster run. With [`Pods::Run`] the runtime
    /// needs its I/O driver enabled.
    ///
    /// # Errors
    /// If the directory for pods can't be created, the data directory can't be opened, or the node can't be registered.
    pub async fn start(self) -> Result<Cluster, StartError> {
        let clock = self.clock.unwrap_or_else(SystemClock::shared);
        let random = self.random.unwrap_or_else(Random::from_entropy);
        let logs = LogStore::default();
        let containers = RunningContainers::default();
        let has_accounts = self.service_account_admission.unwrap_or(self.controllers.contains(ACCOUNT_CONTROLLER));
        let api = self.api.service_account_admission(has_accounts);
        let api = api.node_authorization(self.node_authorization.unwrap_or(true));
        let api = api.node_restriction(self.node_restriction.unwrap_or(true));
        let mut api = api.clock(clock.clone()).random(random.clone()).component("controller-manager");
        if let Some(changes) = self.history {
            api = api.history(changes);
        }
        if self.pods != Pods::None {
            let action = Arc::new(LogAction::new(logs.clone(), clock.clone()));
            api = api.node(NODE_NAME).action("", "v1", "pods", "log", action).component("scheduler");
        }
        let (host_usage, pods) = (HostUsage::default(), NodePods::default());
        let simulated_usage = SimulatedUsage::new(clock.clone(), pods.objects().clone());
        let metrics: Option<Arc<dyn ResourceMetrics>> = match self.pods {
            Pods::Run => Some(Arc::new(host_usage.clone())),
            Pods::Simulate => Some(Arc::new(simulated_usage.clone())),
            Pods::None => None,
        };
        let totals: Option<Arc<dyn UsageTotals>> = match self.pods {
            Pods::Run => Some(Arc::new(host_usage.clone())),
            Pods::Simulate => Some(Arc::new(simulated_usage.clone())),
            Pods::None => None,
        };
        if let Some(totals) = totals {
            api = api.action("", "v1", "nodes", "proxy", Arc::new(KubeletApi::new(totals, pods.clone())));
        }
        if let Some(metrics) = &metrics {
            api = api.resource_metrics(metrics.clone());
        }
        if self.pods == Pods::Run {
            for (name, connection) in
                [("attach", Connection::Attach), ("exec", Connection::Exec), ("portforward", Connection::PortForward)]
            {
                let action = Arc::new(ConnectionAction::new(containers.clone(), connection));
                api = api.action("", "v1", "pods", name, action);
            }
        }
        let api = match &self.data_dir {
            Some(path) => api.open(path)?,
            None => api.build(),
        };
        let mut cluster = Cluster {
            api: api.clone(),
            informer: Informer::new(api.clone()),
            clock: clock.clone(),
            random: random.clone(),
            metrics,
            volumes: None,
            tasks: Mutex::default(),
            tracker: TaskTracker::new(),
            processes: Processes::new(random.uuid()),
            simulation: None,
            endpoints: ApiEndpoints::new(api.clone()),
            directory: None,
            memory: None,
            data_dir: self.data_dir,
        };
        cluster.start_controllers(&self.controllers);
        if !self.has_checkpoint {
            cluster.spawn(cluster.controller_manager().create_accounts(&self.controllers));
        }
        match self.pods {
            Pods::None => cluster.bind_volumes(&self.controllers).await?,
            Pods::Run => {
                let capacity = Capacity::of_host();
                let network = NodeNetwork::open(self.pod_network, &cluster.processes, &random).await;
                let network = network.map_err(StartError::PodNetwork)?;
                if network.pods.is_some() {
                    cluster.endpoints.serve_pods_at(network.address());
                    cluster.open_kubelet(network.address()).await;
                }
                cluster.register(&clock, capacity, network.address()).await?;
                cluster.create_directory()?;
                if self.isolates_containers {
                    cluster.try_isolation().await.map_err(StartError::Isolation)?;
                }
                cluster.bind_volumes(&self.controllers).await?;
                cluster.spawn(usage::sample(host_usage, containers.clone(), clock.clone()));
                let containers = (logs, containers, pods);
                let images = (self.images, self.isolates_containers);
                cluster.start_node(&clock, &random, images, containers, capacity, network);
            }
            Pods::Simulate => {
                cluster.register(&clock, Capacity::simulated(), HOST_ADDRESS).await?;
                cluster.volumes = Some(SIMULATED_VOLUMES.into());
                cluster.bind_volumes(&self.controllers).await?;
                let client = cluster.object_client("kubelet");
                let simulation = Simulation::new(client, clock.clone(), self.simulated_start, (simulated_usage, pods));
                cluster.spawn(simulation.clone().run(api.clone()));
                cluster.simulation = Some(simulation);
                cluster.spawn(scheduler::run(api, cluster.object_client("kube-scheduler"), clock, None));
            }
        }
        Ok(cluster)
    }
}

/// An embedded cluster: an API server, the built-in controllers, and a node.
///
/// Dropping it leaves no process, port, file or task behind: processes are killed before the drop returns, and tasks
/// end as soon as the runtime polls them. [`Cluster::shutdown`] also waits for the tasks.
pub struct Cluster {
    api: ApiServer,
    /// Shared by the controllers that the reconcile loop runs.
    informer: Informer,
    clock: SharedClock,
    random: Random,
    metrics: Option<Arc<dyn ResourceMetrics>>,
    /// The folder of the node for persistent volumes, if there is one.
    volumes: Option<PathBuf>,
    tasks: Mutex<JoinSet<()>>,
    /// All tasks, including those that tasks have spawned.
    tracker: TaskTracker,
    processes: Processes,
    simulation: Option<Simulation>,
    endpoints: ApiEndpoints,
    directory: Option<NodeDirectory>,
    /// The directory of the node for volumes in memory.
    memory: Option<NodeDirectory>,
    data_dir: Option<PathBuf>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("api", &self.api).field("tasks", &self.tracker.len()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Returns a builder with default settings.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// Returns an in-process client with all permissions, which uses no socket.
    pub fn client(&self) -> kube::Client {
        self.api.client()
    }

    /// Returns the API server.
    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    /// Returns all objects as they are now, so that [other clusters](ClusterBuilder::checkpoint) can start with them. It costs some
    /// microseconds, and shares their memory.
    ///
    /// ```
    /// # use kubewright_cluster::{Cluster, Pods};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::builder().pods(Pods::None).start().await?;
    /// cluster.apply_yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: green}}").await?;
    /// let checkpoint = cluster.checkpoint();
    /// let copy = Cluster::builder().pods(Pods::None).checkpoint(&checkpoint).start().await?;
    /// let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::default_namespaced(copy.client());
    /// assert!(maps.get("settings").await.is_ok());
    /// # copy.shutdown().await; cluster.shutdown().await; Ok(()) }
    /// ```
    pub fn checkpoint(&self) -> Checkpoint {
        self.api.checkpoint()
    }

    /// Listens on a loopback address with TLS, for other processes; port 0 selects a free port, or, with a [data
    /// directory](ClusterBuilder::data_dir), the port at which it listened before at this address. The cluster listens
    /// until it ends. If this is not called, the cluster starts to listen on a free port as soon as a pod runs that
    /// mounts its service account token.
    ///
    /// # Errors
    /// If the address can't be bound.
    pub async fn listen(&self, address: SocketAddr) -> Result<Endpoint, ListenError> {
        self.listen_with(ListenOptions::from(address)).await
    }

    /// Like [`Cluster::listen`], with all options.
    ///
    /// # Errors
    /// If the address can't be bound, or if it is reachable from other hosts and the options don't allow that.
    pub async fn listen_with(&self, options: ListenOptions) -> Result<Endpoint, ListenError> {
        let Some(path) = self.data_dir.as_ref().map(|path| path.join(ADDRESS)) else {
            return self.endpoints.open(options).await;
        };
        let options = with_earlier_port(options, &path);
        let endpoint = self.endpoints.open(options).await?;
        if let Err(error) = std::fs::write(&path, format!("{}\n", endpoint.address())) {
            tracing::warn!(%error, path = %path.display(), "failed to keep the address of the server");
        }
        Ok(endpoint)
    }

    /// Ends the main containers of a running pod with an exit code. Requires [`Pods::Simulate`]. As with real pods, the
    /// restart policy decides whether the pod succeeds, fails, or continues with a higher restart count. There is no
    /// back-off.
    ///
    /// # Errors
    /// If the pod doesn't exist or isn't running, or if pods aren't simulated.
    pub async fn finish_pod(&self, namespace: &str, name: &str, exit_code: i32) -> Result<(), FinishError> {
        match &self.simulation {
            Some(simulation) => simulation.finish(namespace, name, exit_code).await,
            None => Err(FinishError::NotSimulated),
        }
    }

    /// Sets what containers of simulated pods use, by the pod and the name of the container, which `metrics.k8s.io` and autoscalers
    /// read. It is called at each request, and replaces an earlier one; by default, containers use nothing. The API server
    /// must not be called in it. Without [`Pods::Simulate`] it has no effect.
    ///
    /// ```no_run
    /// # use kubewright_cluster::{Cluster, ResourceUsage};
    /// # fn example(cluster: &Cluster) {
    /// // Each pod of the app uses half a core and 64 MiB.
    /// cluster.set_usage(|pod, _container| match pod["metadata"]["labels"]["app"].as_str() {
    ///     Some("web") => ResourceUsage { cpu_nanocores: 500_000_000, memory_bytes: 64 << 20 },
    ///     _ => ResourceUsage::default(),
    /// });
    /// # }
    /// ```
    pub fn set_usage(&self, usage: impl Fn(&serde_json::Value, &str) -> ResourceUsage + Send + Sync + 'static) {
        if let Some(simulation) = &self.simulation {
            simulation.usage().set(usage);
        }
    }

    /// Stops all parts of the cluster, and waits until they have ended.
    pub async fn shutdown(mut self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
        self.close_processes();
        self.tracker.close();
        self.tracker.wait().await;
        for listener in self.endpoints.take() {
            listener.shutdown().await;
        }
        drop((self.directory.take(), self.memory.take()));
        self.api.close();
    }

    /// Returns the in-process client of a component, such as `kubelet`, or of a controller, such as `job-controller`: with its user
    /// and its `User-Agent`, and with all permissions.
    pub fn component_client(&self, component: &str) -> kube::Client {
        component::client(&self.api, component)
    }

    fn object_client(&self, component: &str) -> ObjectClient {
        ObjectClient::new(self.component_client(component))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().spawn(self.tracker.track_future(panics::log(task)));
    }

    fn recorder(&self, component: &'static str, host: &'static str) -> Recorder {
        self.controller_manager().recorder(component, host, &|task| self.spawn(task))
    }

    /// Starts what is a part of every API server, and the selected controllers.
    fn start_controllers(&self, selected: &Controllers) {
        let (api, clock) = (&self.api, &self.clock);
        let namespaces = selected.contains(NAMESPACES).then(|| self.object_client(NAMESPACES));
        self.spawn(deletion::run(api.clone(), self.object_client(KIND_TERMINATOR), namespaces, clock.clone()));
        self.spawn(event_ttl::run(self.component_client("kube-apiserver"), clock.clone()));
        let server = self.object_client("kube-apiserver");
        self.spawn(api_services::register(api.clone(), server.clone(), clock.clone()));
        self.spawn(api_services::check(api.clone(), server, clock.clone()));
        self.spawn(kubernetes_service::run(
            api.clone(),
            self.object_client("kube-apiserver"),
            clock.clone(),
            self.endpoints.address(),
        ));
        self.controller_manager().start(selected, &|task| self.spawn(task));
    }

    /// Returns what starts the controllers of the cluster.
    fn controller_manager(&self) -> ControllerManager<'_> {
        ControllerManager {
            api: &self.api,
            informer: self.informer.clone(),
            clock: &self.clock,
            random: self.random.clone(),
            metrics: self.metrics.clone(),
            certificate: self.endpoints.certificate(),
            clients: Box::new(|component| self.component_client(component)),
        }
    }

    /// Runs the built-in controllers with clients of one's own, such as ones whose requests fail, for as long as the future is polled.
    /// `client` returns the client of a component, such as `kube-controller-manager` or `job-controller`. The
    /// controllers begin without a memory, like `kube-controller-manager` when it is started. The cluster itself has to run
    /// [none](Controllers::none), and the controllers hold no lock that keeps several of these futures from getting in each other's way.
    ///
    /// ```
    /// # use kubewright_apimachinery::random::Random;
    /// # use kubewright_cluster::{Cluster, Controllers, Pods, faults::{Faults, Verb}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::builder().pods(Pods::None).controllers(Controllers::none()).start().await?;
    /// let faults = Faults::new();
    /// faults.on(&[Verb::Create], "serviceaccounts").times(2).refuse(503, "ServiceUnavailable");
    /// let client = |component: &str| faults.client(&cluster.component_client(component));
    /// let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> = kube::Api::default_namespaced(cluster.client());
    /// let wait = async {
    ///     while accounts.get_opt("default").await?.is_none() {
    ///         tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    ///     }
    ///     Ok::<(), kube::Error>(())
    /// };
    /// tokio::select! { biased;
    ///     () = cluster.run_controllers(client, Random::seeded(1)) => {}
    ///     created = wait => created?,
    /// }
    /// # cluster.shutdown().await; Ok(()) }
    /// ```
    pub async fn run_controllers(&self, client: impl Fn(&str) -> kube::Client + Send + Sync, random: Random) {
        if let Err(error) = self.create_storage_class().await {
            tracing::error!(%error, "failed to create the storage class");
        }
        let tasks = Mutex::new(JoinSet::new());
        let spawn = |task| drop(tasks.lock().spawn(task));
        let (informer, selected) = (Informer::new(self.api.clone()), Controllers::all());
        let manager = ControllerManager { informer, random, clients: Box::new(client), ..self.controller_manager() };
        let [kinds, namespaces] = [KIND_TERMINATOR, NAMESPACES].map(|name| ObjectClient::new((manager.clients)(name)));
        spawn(deletion::run(self.api.clone(), kinds, Some(namespaces), self.clock.clone()).boxed());
        manager.start(&selected, &spawn);
        manager.control(&selected, VOLUMES, Volumes::new(self.volumes.clone()), &spawn);
        drop(manager);
        let mut tasks = tasks.into_inner();
        // They end only if they panic.
        while tasks.join_next().await.is_some() {}
    }

    /// Starts the controller of persistent volumes.
    async fn bind_volumes(&self, selected: &Controllers) -> Result<(), StartError> {
        if selected.contains(VOLUMES) {
            self.create_storage_class().await.map_err(StartError::StorageClass)?;
        }
        let volumes = Volumes::new(self.volumes.clone());
        self.controller_manager().control(selected, VOLUMES, volumes, &|task| self.spawn(task));
        Ok(())
    }

    /// Creates the class of the volumes that are folders of the node, if there are such volumes.
    async fn create_storage_class(&self) -> Result<(), kube::Error> {
        if self.volumes.is_none() {
            return Ok(());
        }
        let client = self.object_client("kube-addon-manager");
        match client.create(&volume_binder::CLASS.address("", ""), "", &volume_binder::provision::class()).await {
            // It is there since an earlier start.
            Err(error) if is_conflict(&error) => Ok(()),
            created => created.map(drop),
        }
    }

    /// Creates the directory of the node, with the folder for persistent volumes.
    fn create_directory(&mut self) -> Result<(), StartError> {
        let root = std::env::temp_dir();
        let directory = NodeDirectory::new(&root, &self.processes.id()).map_err(StartError::Directory)?;
        self.memory = NodeDirectory::new(MEMORY.as_ref(), &self.processes.id()).ok();
        self.tracker.spawn_blocking(move || {
            node_directory::remove_abandoned(&root);
            node_directory::remove_abandoned(MEMORY.as_ref());
        });
        let folders = match &self.data_dir {
            Some(path) => std::path::absolute(path).map_err(StartError::Directory)?.join("volumes"),
            None => directory.path().join("volumes"),
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&folders).map_err(StartError::Directory)?;
        (self.directory, self.volumes) = (Some(directory), Some(folders));
        Ok(())
    }

    /// Opens the port of the node's kubelet, which only a node with an address of its own has.
    async fn open_kubelet(&self, address: Ipv4Addr) {
        let address = SocketAddr::from((address, KUBELET_PORT));
        let prefix = format!("/api/v1/nodes/{NODE_NAME}/proxy");
        if let Err(error) = self.endpoints.open_kubelet(address, prefix).await {
            tracing::warn!(%error, "clients of the node's kubelet can't reach it");
        }
    }

    /// Finds out whether containers can be isolated.
    async fn try_isolation(&self) -> Result<(), String> {
        let folder = self.directory.as_ref().map(|directory| directory.path().join(view::TRIAL)).unwrap_or_default();
        let tried = tokio::task::spawn_blocking(move || view::Tools::find(&folder, true)).await;
        tried.map_err(|error| error.to_string())?.map(drop)
    }

    async fn register(&self, clock: &SharedClock, capacity: Capacity, address: Ipv4Addr) -> Result<(), StartError> {
        let version = self.client().apiserver_version().await.map_err(StartError::Register)?;
        let client = self.object_client("kubelet");
        object::register(&client, clock, capacity, &version.git_version, address).await.map_err(StartError::Register)
    }

    fn start_node(
        &mut self,
        clock: &SharedClock,
        random: &Random,
        (images, isolates_containers): (ImageTable, bool),
        (logs, containers, pods): (LogStore, RunningContainers, NodePods),
        capacity: Capacity,
        network: NodeNetwork,
    ) {
        let NodeNetwork { addresses, pods: networks, dns } = network;
        let (hosts, has_dns) = (Arc::<Hosts>::default(), dns.is_some());
        if let Some(dns) = dns {
            self.spawn(dns.run(hosts.clone()));
        }
        raise_open_files();
        stop_ignoring_terminal_signals();
        let directory = self.directory.as_ref().map(|directory| directory.path().to_owned()).unwrap_or_default();
        let host = NodeContext {
            client: self.object_client("kubelet"),
            clock: clock.clone(),
            random: random.clone(),
            images,
            processes: self.processes.clone(),
            addresses,
            networks,
            logs,
            containers,
            events: self.recorder("kubelet", NODE_NAME),
            server: self.endpoints.address(),
            endpoints: self.endpoints.clone(),
            hosts: hosts.clone(),
            has_dns,
            capacity,
            writes: Semaphore::new(WRITES),
            measurements: Semaphore::new(1),
            tokens: Default::default(),
            setpriv: Default::default(),
            view_tools: Default::default(),
            isolates_containers,
            volume_writes: Default::default(),
            devices: isolates_containers.then(|| Devices::new(&directory)),
            directory,
            memory: self.memory.as_ref().map(|memory| memory.path().to_owned()),
            tasks: self.tracker.clone(),
        };
        let networks = host.networks.clone().map(|networks| (networks, host.addresses.take()));
        let network = ProxyNetwork { node: host.address(), pods: networks };
        let events = self.recorder("default-scheduler", "");
        self.spawn(node::run(self.api.clone(), Arc::new(host), pods));
        let task = self.recorder("kube-proxy", NODE_NAME);
        self.spawn(proxy::run(self.api.clone(), clock.clone(), task, self.tracker.clone(), network));
        self.spawn(object::renew(self.object_client("kubelet"), clock.clone()));
        let client = self.object_client("kube-scheduler");
        self.spawn(scheduler::run(self.api.clone(), client, clock.clone(), Some(events)));
    }

    /// Kills all processes and prevents new ones from starting.
    fn close_processes(&self) {
        self.processes.close();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.tasks.lock().abort_all();
        self.close_processes();
        drop(self.endpoints.take());
        drop((self.directory.take(), self.memory.take()));
        self.api.close();
    }
}

/// Replaces port 0 by the port of the address in a file, if its address is the same.
fn with_earlier_port(mut options: ListenOptions, path: &Path) -> ListenOptions {
    let earlier = || std::fs::read_to_string(path).ok()?.trim().parse::<SocketAddr>().ok();
    if options.address.port() == 0
        && let Some(earlier) = earlier().filter(|earlier| earlier.ip() == options.address.ip())
    {
        options.address = earlier;
    }
    options
}
