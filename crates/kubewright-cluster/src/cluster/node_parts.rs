//! The node of a cluster: what it serves through the API server, and its start.

use std::{
    fs::DirBuilder,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::DirBuilderExt,
    sync::Arc,
    time::Duration,
};

use kubewright_apimachinery::{cidr::Cidr, clock::SharedClock};
use kubewright_apiserver::{ApiServerBuilder, ResourceMetrics};
use tokio::sync::Semaphore;

use super::{Cluster, Pods, StartError};
use crate::{
    controllers::{scheduler, selection::Controllers},
    node::{
        self, ImageTable, KUBELET_PORT, NODE_NAME, NodeContext, PodNetwork, WRITES,
        address::HOST_ADDRESS,
        devices::Devices,
        dns,
        exec::{Connection, ConnectionAction, RunningContainers},
        hosts::Hosts,
        kubelet_api::KubeletApi,
        log::{LogAction, LogStore},
        network::{AddressRanges, NodeNetwork},
        node_directory::{self, NodeDirectory},
        object::{self, Capacity},
        pods::NodePods,
        probe_counts::ProbeCounts,
        process::{raise_open_files, stop_ignoring_terminal_signals},
        proxy::{self, ListenerContext, Places},
        simulation::Simulation,
        usage::{self, HostUsage, SimulatedUsage, UsageTotals},
        view,
    },
};

/// The folder of the volumes of simulated pods. It isn't created, since no process uses it.
const SIMULATED_VOLUMES: &str = "/var/lib/kubewright/volumes";
/// The directory of Linux's file system in memory.
const MEMORY: &str = "/dev/shm";
/// The subresources of pods that connect clients with their processes.
const CONNECTIONS: [(&str, Connection); 3] =
    [("attach", Connection::Attach), ("exec", Connection::Exec), ("portforward", Connection::PortForward)];

/// The settings of a node that runs pods as processes.
pub(super) struct NodeOptions {
    pub(super) images: ImageTable,
    pub(super) network: PodNetwork,
    pub(super) ranges: AddressRanges,
    pub(super) isolates_containers: bool,
}

/// The state of a node that the API server shows.
pub(super) struct NodeParts {
    logs: LogStore,
    containers: RunningContainers,
    host_usage: HostUsage,
    simulated_usage: SimulatedUsage,
    pods: NodePods,
    probes: ProbeCounts,
}

impl NodeParts {
    /// Creates the state of a node without pods.
    pub(super) fn new(clock: &SharedClock) -> Self {
        let pods = NodePods::default();
        Self {
            logs: LogStore::default(),
            containers: RunningContainers::default(),
            host_usage: HostUsage::default(),
            simulated_usage: SimulatedUsage::new(clock.clone(), pods.objects().clone()),
            pods,
            probes: ProbeCounts::default(),
        }
    }

    /// Returns what a node that runs pods in this way knows about the use of resources.
    pub(super) fn metrics(&self, pods: Pods) -> Option<Arc<dyn ResourceMetrics>> {
        match pods {
            Pods::Run => Some(Arc::new(self.host_usage.clone())),
            Pods::Simulate => Some(Arc::new(self.simulated_usage.clone())),
            Pods::None => None,
        }
    }

    fn usage_totals(&self, pods: Pods) -> Option<Arc<dyn UsageTotals>> {
        match pods {
            Pods::Run => Some(Arc::new(self.host_usage.clone())),
            Pods::Simulate => Some(Arc::new(self.simulated_usage.clone())),
            Pods::None => None,
        }
    }

    /// Adds to an API server what a node that runs pods in this way serves.
    pub(super) fn serve(&self, mut api: ApiServerBuilder, pods: Pods, clock: &SharedClock) -> ApiServerBuilder {
        if pods != Pods::None {
            let action = Arc::new(LogAction::new(self.logs.clone(), clock.clone()));
            api = api.node(NODE_NAME).action("", "v1", "pods", "log", action).component("scheduler");
        }
        if let Some(totals) = self.usage_totals(pods) {
            let shown = (self.pods.clone(), self.probes.clone());
            api = api.action("", "v1", "nodes", "proxy", Arc::new(KubeletApi::new(totals, shown, clock.now())));
        }
        if let Some(metrics) = self.metrics(pods) {
            api = api.resource_metrics(metrics);
        }
        if pods == Pods::Run {
            for (name, connection) in CONNECTIONS {
                let action = Arc::new(ConnectionAction::new(self.containers.clone(), connection));
                api = api.action("", "v1", "pods", name, action);
            }
        }
        api
    }
}

impl Cluster {
    /// Starts a node that runs pods as processes.
    pub(super) async fn run_node(
        &mut self,
        parts: NodeParts,
        options: NodeOptions,
        selected: &Controllers,
    ) -> Result<(), StartError> {
        let capacity = Capacity::of_host();
        let network = NodeNetwork::open(options.network, options.ranges, &self.processes, &self.random).await;
        let network = network.map_err(StartError::PodNetwork)?;
        if network.pods.is_some() {
            self.endpoints.serve_pods_at(network.address());
            self.open_kubelet(network.address()).await;
        }
        self.register(capacity, network.address(), options.ranges.pods).await?;
        if network.dns.is_some() {
            let (client, services) = (self.object_client("kube-dns"), options.ranges.services);
            let published = dns::service::publish(&client, network.address(), services).await;
            published.unwrap_or_else(|error| tracing::warn!(%error, "failed to write the Service kube-dns"));
        }
        self.create_directory()?;
        if options.isolates_containers {
            self.try_isolation().await.map_err(StartError::Isolation)?;
        }
        self.bind_volumes(selected).await?;
        let (usage, containers) = (parts.host_usage.clone(), parts.containers.clone());
        self.spawn(usage::sample(usage, containers, self.clock.clone()));
        self.start_node(parts, options, capacity, network);
        Ok(())
    }

    /// Starts a node on which pods run without processes.
    pub(super) async fn simulate_node(
        &mut self,
        parts: NodeParts,
        start: Duration,
        selected: &Controllers,
    ) -> Result<(), StartError> {
        self.register(Capacity::simulated(), HOST_ADDRESS, None).await?;
        self.volumes = Some(SIMULATED_VOLUMES.into());
        self.bind_volumes(selected).await?;
        let (client, parts) = (self.object_client("kubelet"), (parts.simulated_usage, parts.pods));
        let simulation = Simulation::new(client, self.clock.clone(), start, parts);
        self.spawn(simulation.clone().run(self.api.clone()));
        self.simulation = Some(simulation);
        let client = self.object_client("kube-scheduler");
        self.spawn(scheduler::run(self.api.clone(), client, self.clock.clone(), self.random.clone(), None));
        Ok(())
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

    async fn register(&self, capacity: Capacity, address: Ipv4Addr, pods: Option<Cidr>) -> Result<(), StartError> {
        let version = self.client().apiserver_version().await.map_err(StartError::Register)?;
        let client = self.object_client("kubelet");
        object::register(&client, &self.clock, capacity, &version.git_version, address, pods)
            .await
            .map_err(StartError::Register)
    }

    fn start_node(&self, parts: NodeParts, options: NodeOptions, capacity: Capacity, network: NodeNetwork) {
        let NodeNetwork { addresses, pods: networks, services, dns } = network;
        let (hosts, has_dns) = (Arc::<Hosts>::default(), dns.is_some());
        if let Some(dns) = dns {
            self.spawn(dns.run(hosts.clone()));
        }
        raise_open_files();
        stop_ignoring_terminal_signals();
        let directory = self.directory.as_ref().map(|directory| directory.path().to_owned()).unwrap_or_default();
        let host = NodeContext {
            client: self.object_client("kubelet"),
            clock: self.clock.clone(),
            random: self.random.clone(),
            images: options.images,
            processes: self.processes.clone(),
            addresses,
            networks,
            logs: parts.logs,
            containers: parts.containers,
            events: self.recorder("kubelet", NODE_NAME),
            server: self.endpoints.address(),
            endpoints: self.endpoints.clone(),
            hosts: hosts.clone(),
            has_dns,
            capacity,
            writes: Semaphore::new(WRITES),
            measurements: Semaphore::new(1),
            probes: parts.probes,
            tokens: Default::default(),
            setpriv: Default::default(),
            view_tools: Default::default(),
            isolates_containers: options.isolates_containers,
            control_groups: Default::default(),
            volume_writes: Default::default(),
            devices: options.isolates_containers.then(|| Arc::new(Devices::new(&directory))),
            directory,
            memory: self.memory.as_ref().map(|memory| memory.path().to_owned()),
            tasks: self.tracker.clone(),
        };
        let policies = host.policies().cloned();
        if let Some(policies) = policies.clone() {
            self.spawn(policies.run(services.as_ref().map(|services| services.namespace().clone())));
        }
        let places = Places::new(host.address(), services);
        let events = self.recorder("default-scheduler", "");
        self.spawn(node::run(self.api.clone(), Arc::new(host), parts.pods));
        let context = ListenerContext { clock: self.clock.clone(), tasks: self.tracker.clone(), policies };
        let events_of_proxy = self.recorder("kube-proxy", NODE_NAME);
        self.spawn(proxy::run(self.api.clone(), context, events_of_proxy, places));
        self.spawn(object::renew(self.object_client("kubelet"), self.clock.clone()));
        let client = self.object_client("kube-scheduler");
        self.spawn(scheduler::run(self.api.clone(), client, self.clock.clone(), self.random.clone(), Some(events)));
    }
}
