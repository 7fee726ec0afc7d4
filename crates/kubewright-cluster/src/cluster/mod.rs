//! The cluster as a whole: its parts, their start, and their shutdown.

mod builder;
mod node_parts;

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::FutureExt;
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use kubewright_apiserver::{ApiServer, Checkpoint, ListenError, ListenOptions, ResourceMetrics, ResourceUsage};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

pub use self::builder::{ClusterBuilder, Pods, StartError};
use crate::{
    api_endpoints::{ApiEndpoints, Endpoint},
    component::{self, KIND_TERMINATOR},
    controllers::{
        api_services, deletion, event_ttl,
        informer::Informer,
        kubernetes_service,
        manager::{ControllerManager, VOLUMES},
        selection::Controllers,
        volume_binder::{self, Volumes},
    },
    events::Recorder,
    node::{
        node_directory::NodeDirectory,
        process::Processes,
        simulation::{FinishError, Simulation},
    },
    object_client::{ObjectClient, is_conflict},
    panics,
};

/// The controller that empties namespaces.
const NAMESPACES: &str = "namespace-controller";
/// The file of the data directory that contains the address of the server.
const ADDRESS: &str = "address";

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

    /// Returns all objects as they are now, so that [other clusters](ClusterBuilder::checkpoint) can start with them.
    /// It costs some microseconds, and shares their memory.
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

    /// Sets what containers of simulated pods use, by the pod and the name of the container, which `metrics.k8s.io` and
    /// autoscalers read. It is called at each request, and replaces an earlier one; by default, containers use nothing.
    /// The API server must not be called in it. Without [`Pods::Simulate`] it has no effect.
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

    /// Returns the in-process client of a component, such as `kubelet`, or of a controller, such as `job-controller`:
    /// with its user and its `User-Agent`, and with all permissions.
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

    /// Runs the built-in controllers with clients of one's own, such as ones whose requests fail, for as long as the
    /// future is polled. `client` returns the client of a component, such as `kube-controller-manager` or
    /// `job-controller`. The controllers begin without a memory, like `kube-controller-manager` when it is started. The
    /// cluster itself has to run [none](Controllers::none), and the controllers hold no lock that keeps several of
    /// these futures from getting in each other's way.
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
