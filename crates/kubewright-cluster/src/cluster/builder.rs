//! The settings of a cluster, and its start.

use std::{path::PathBuf, sync::Arc, time::Duration};

use kubewright_apimachinery::{
    cidr::Cidr,
    clock::{SharedClock, SystemClock},
    random::Random,
};
use kubewright_apiserver::{
    AdmissionPlugin, ApiServerBuilder, AuditLog, AuthorizationMode, Checkpoint, DataDirError, Durability,
    PodSecurityConfig, ServiceRange, TlsError, TokenReviewer, UserInfo, WebhookTransport,
};
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use super::{
    Cluster,
    node_parts::{NodeOptions, NodeParts},
};
use crate::{
    api_endpoints::ApiEndpoints,
    controllers::{informer::Informer, selection::Controllers},
    node::{ImageTable, PodNetwork, network::AddressRanges, process::Processes},
};

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
    pod_range: Option<Cidr>,
    isolates_containers: bool,
    clock: Option<SharedClock>,
    random: Option<Random>,
    images: ImageTable,
    simulated_start: Duration,
    history: Option<usize>,
    controllers: Controllers,
    service_account_admission: Option<bool>,
    authorization_modes: Option<Vec<AuthorizationMode>>,
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

    /// Returns whether pods run as processes.
    pub fn runs_pods(&self) -> bool {
        self.pods == Pods::Run
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

    /// Sets the range of the addresses of pods that run as processes, such as `10.244.0.0/16`: IPv4, with a length from
    /// 8 to 28. Requires [`PodNetwork::Namespaces`], and that nothing else on this host uses the range. Defaults to
    /// loopback addresses, which several clusters on a host share.
    pub fn pod_range(mut self, range: Cidr) -> Self {
        self.pod_range = Some(range);
        self
    }

    /// Gives each container that runs as a process a file system and processes of its own, as in Kubernetes. Off by
    /// default: containers then write the files of this machine, and see its processes.
    ///
    /// A container starts with the files of this machine. What it writes outside of its volumes is visible to this
    /// container only, and is removed when it ends or restarts. It may not see files that others change on this machine
    /// while it runs; volumes are shared as usual. Its program has the process ID 1: Linux ignores SIGTERM for it
    /// unless it has a handler, so it is killed after the grace period. With `shareProcessNamespace`, the containers of
    /// a pod share a process namespace, and an ephemeral container shares that of its `targetContainerName`. Containers
    /// of pods with `hostPID` see the processes of the machine.
    ///
    /// An `emptyDir` in memory is a file system of its own with the size that a kubelet gives it, which the node mounts
    /// on this machine. It is unmounted with its pod or, if this process is killed, when the next cluster starts;
    /// without isolation, the mounts of the machine don't change, and such a directory is one of `/dev/shm` without a
    /// limit of its own.
    ///
    /// A container that needs more memory than its limit is killed, and its reason is `OOMKilled`, if the machine has
    /// control groups with a memory controller. Swapped memory doesn't add to the limit.
    ///
    /// Requires Linux 5.10, root, and the programs `mount`, `nsenter` and `unshare` (of util-linux). The directory of
    /// the node, which is in the temporary directory, can't be on an overlay itself, as the files of most containers
    /// are.
    pub fn isolate_containers(mut self, isolates: bool) -> Self {
        self.isolates_containers = isolates;
        self
    }

    /// Sets the clock. Waiting uses tokio's timers, so a virtual clock requires a runtime whose time is paused.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the source of UIDs, generated names, and the first addresses and node ports. Clusters that run pods at
    /// the same time need different seeds: their addresses are in the machine's loopback network.
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

    /// Runs the API server alone, as envtest does: no controllers and no node, so that nothing but the test writes.
    /// Objects of built-in kinds stay as they are written, namespaces are never emptied, and children outlive their
    /// owners.
    pub fn api_only(self) -> Self {
        self.controllers(Controllers::none()).pods(Pods::None)
    }

    /// Sets the issuer of service account tokens; see [`ApiServerBuilder::service_account_issuer`].
    pub fn service_account_issuer(mut self, issuer: impl Into<String>) -> Self {
        self.api = self.api.service_account_issuer(issuer);
        self
    }

    /// Sets the audiences of the API server; see [`ApiServerBuilder::api_audiences`].
    pub fn api_audiences(mut self, audiences: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.api = self.api.api_audiences(audiences);
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

    /// Turns an admission plugin off; see [`ApiServerBuilder::without_admission_plugin`].
    pub fn without_admission_plugin(mut self, plugin: AdmissionPlugin) -> Self {
        self.api = self.api.without_admission_plugin(plugin);
        self
    }

    /// Configures the admission plugin `PodSecurity`; see [`ApiServerBuilder::pod_security`].
    pub fn pod_security(mut self, config: PodSecurityConfig) -> Self {
        self.api = self.api.pod_security(config);
        self
    }

    /// Sets whether pods are admitted by their service accounts; see [`ApiServerBuilder::service_account_admission`].
    /// Defaults to whether `serviceaccount-controller` is among the controllers.
    pub fn service_account_admission(mut self, enabled: bool) -> Self {
        self.service_account_admission = Some(enabled);
        self
    }

    /// Sets whether requests without credentials are accepted; see [`ApiServerBuilder::anonymous_auth`]. Defaults to
    /// true.
    pub fn anonymous_auth(mut self, enabled: bool) -> Self {
        self.api = self.api.anonymous_auth(enabled);
        self
    }

    /// Sets the paths for which requests without credentials are accepted; see [`ApiServerBuilder::anonymous_paths`].
    /// Defaults to all.
    pub fn anonymous_paths(mut self, paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.api = self.api.anonymous_paths(paths);
        self
    }

    /// Sets how requests are authorized; see [`ApiServerBuilder::authorization_modes`]. Defaults to nodes by their
    /// pods, then roles, as with kubeadm.
    pub fn authorization_modes(mut self, modes: impl IntoIterator<Item = AuthorizationMode>) -> Self {
        self.authorization_modes = Some(modes.into_iter().collect());
        self
    }

    /// Adds a user who is identified by a bearer token; see [`ApiServerBuilder::static_token`].
    pub fn static_token(mut self, token: impl Into<String>, user: UserInfo) -> Self {
        self.api = self.api.static_token(token, user);
        self
    }

    /// Adds a reviewer of unknown bearer tokens; see [`ApiServerBuilder::token_reviewer`].
    pub fn token_reviewer(mut self, reviewer: Arc<dyn TokenReviewer>) -> Self {
        self.api = self.api.token_reviewer(reviewer);
        self
    }

    /// Sets whether the changes of nodes are limited to themselves and their pods; see
    /// [`ApiServerBuilder::node_restriction`]. Defaults to true, as with kubeadm. The cluster's own node isn't limited.
    pub fn node_restriction(mut self, enabled: bool) -> Self {
        self.node_restriction = Some(enabled);
        self
    }

    /// Records requests in an audit log; see [`ApiServerBuilder::audit_log`]. Defaults to none.
    pub fn audit_log(mut self, log: AuditLog) -> Self {
        self.api = self.api.audit_log(log);
        self
    }

    /// Sets the range that addresses of services are allocated from; see [`ApiServerBuilder::service_range`]. With
    /// [`PodNetwork::Host`], services answer only at addresses of the loopback network, as those of the default range;
    /// with [`PodNetwork::Namespaces`], nothing else on this host may use the range.
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

    /// Starts with the objects of another cluster with the same settings, which takes less time than to create them:
    /// the node, the storage class, custom kinds, and whatever else was there; see [`Cluster::checkpoint`]. What its
    /// controllers hadn't done, this one's do. Has no effect with a [data directory](Self::data_dir).
    pub fn checkpoint(mut self, checkpoint: &Checkpoint) -> Self {
        self.api = self.api.checkpoint(checkpoint);
        self.has_checkpoint = true;
        self
    }

    /// Keeps the cluster in a directory, which is created if it doesn't exist: its objects, credentials, and the
    /// folders of persistent volumes. By default, a cluster is in memory and ends with its process. See
    /// [`ApiServerBuilder::open`] for what is kept and when.
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
    /// registered. The default ServiceAccounts are created shortly afterwards, if `serviceaccount-controller` is among
    /// the controllers.
    ///
    /// Must be called within a tokio runtime, on which all tasks of the cluster run. With [`Pods::Run`] the runtime
    /// needs its I/O driver enabled.
    ///
    /// # Errors
    /// If the directory for pods can't be created, the data directory can't be opened, or the node can't be registered.
    pub async fn start(self) -> Result<Cluster, StartError> {
        let clock = self.clock.unwrap_or_else(SystemClock::shared);
        let random = self.random.unwrap_or_else(Random::from_entropy);
        let parts = NodeParts::new(&clock);
        let has_accounts = self.service_account_admission.unwrap_or(self.controllers.contains(ACCOUNT_CONTROLLER));
        let api = self.api.service_account_admission(has_accounts);
        let modes = self.authorization_modes.unwrap_or_else(|| vec![AuthorizationMode::Node, AuthorizationMode::Rbac]);
        let api = api.authorization_modes(modes);
        let api = api.node_restriction(self.node_restriction.unwrap_or(true));
        let mut api = api.clock(clock.clone()).random(random.clone()).component("controller-manager");
        if let Some(changes) = self.history {
            api = api.history(changes);
        }
        api = parts.serve(api, self.pods, &clock);
        let api = match &self.data_dir {
            Some(path) => api.open(path)?,
            None => api.build(),
        };
        let mut cluster = Cluster {
            api: api.clone(),
            informer: Informer::new(api.clone()),
            clock,
            processes: Processes::new(random.uuid()),
            random,
            metrics: parts.metrics(self.pods),
            volumes: None,
            tasks: Mutex::default(),
            tracker: TaskTracker::new(),
            simulation: None,
            endpoints: ApiEndpoints::new(api),
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
                let options = NodeOptions {
                    images: self.images,
                    network: self.pod_network,
                    ranges: AddressRanges { pods: self.pod_range, services: cluster.api.service_range().into() },
                    isolates_containers: self.isolates_containers,
                };
                cluster.run_node(parts, options, &self.controllers).await?;
            }
            Pods::Simulate => cluster.simulate_node(parts, self.simulated_start, &self.controllers).await?,
        }
        Ok(cluster)
    }
}
