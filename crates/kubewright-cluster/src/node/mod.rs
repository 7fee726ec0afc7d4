//! The node: this host, as the machine that the cluster's pods run on.
//!
//! * [`image`]: the programs that run in place of images
//! * [`admission`]: whether the node takes a pod
//! * [`pod`]: the lifecycle of a pod
//! * [`pods`]: the pods of the node
//! * [`environment`], [`env_file`], [`resource`] and [`volume`]: variables, files of variables, resource fields and
//!   volumes of containers
//! * [`host_path`]: directories and files of the host as volumes
//! * [`volume_files`] and [`tokens`]: the files of volumes, and the tokens of service accounts in them
//! * [`view`]: volumes at their mount paths
//! * [`network`], [`namespace`] and [`egress`]: the network namespaces of pods
//! * [`network_policy`]: the connections that pods may make
//! * [`identity`]: the users and groups of containers and volumes
//! * [`privileges`]: what containers may do
//! * [`process`] and [`process_streams`]: process groups, and their streams
//! * [`exec`]: connections to running containers
//! * [`log`]: container logs
//! * [`kubelet_api`]: the kubelet's own statistics
//! * [`proxy`], [`service_network`], [`service_env`], [`hosts`] and [`dns`]: the routing and discovery of services
//! * [`sysctl`]: the kernel parameters that pods may set
//! * [`sockets`]: sockets of the node's servers
//! * [`object`]: the Node object and its lease
//! * [`node_directory`]: the node's directory
//! * [`simulation`]: pods without processes
//! * [`usage`]: what the node and its containers use

pub(crate) mod address;
mod admission;
mod backoff;
pub(crate) mod control_group;
pub(crate) mod devices;
pub(crate) mod dns;
mod egress;
mod env_file;
mod environment;
pub(crate) mod exec;
mod host_path;
pub(crate) mod hosts;
mod identity;
mod image;
pub(crate) mod kubelet_api;
pub(crate) mod log;
mod mounts;
mod namespace;
pub(crate) mod network;
pub(crate) mod network_policy;
pub(crate) mod node_directory;
pub(crate) mod object;
mod pod;
pub(crate) mod pods;
pub(crate) mod privileges;
pub(crate) mod probe_counts;
pub(crate) mod process;
mod process_streams;
pub(crate) mod proxy;
pub(crate) mod resource;
mod service_env;
pub(crate) mod service_network;
pub(crate) mod simulation;
mod sockets;
mod sysctl;
mod tokens;
pub(crate) mod usage;
pub(crate) mod view;
mod volume;
mod volume_files;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kubewright_apimachinery::watch;
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use kubewright_apiserver::{ApiServer, Change, ChangeKind, Feed};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    sync::{OnceCell, Semaphore, mpsc},
    task::JoinSet,
};
use tokio_util::task::TaskTracker;

use self::{
    address::{Addresses, HOST_ADDRESS},
    admission::{Admission, Rejection},
    control_group::ControlGroups,
    devices::Devices,
    environment::Reference,
    exec::RunningContainers,
    hosts::Hosts,
    log::LogStore,
    network::PodNetworks,
    network_policy::NetworkPolicies,
    object::Capacity,
    pod::worker::{Message, Worker},
    pods::NodePods,
    probe_counts::ProbeCounts,
    process::Processes,
    tokens::Tokens,
    view::Tools,
};
pub use self::{
    image::{ImageTable, Program},
    network::PodNetwork,
};
use crate::{
    api_endpoints::ApiEndpoints,
    controllers::reconcile::Key,
    events::{ObjectEvent, Recorder},
    object_client::{DeleteOptions, ObjectClient, ObjectPath, is_conflict, is_gone},
};

/// The name of the only node.
pub(crate) const NODE_NAME: &str = "kubewright";
/// The port of the node's kubelet.
pub(crate) const KUBELET_PORT: u16 = 10250;

/// The number of pods that write their status concurrently. Unlike for the kubelet, a write costs CPU time on this
/// machine, so that unlimited writes would starve everything else if hundreds of pods end at once. The kubelet has a
/// similar limit.
pub(crate) const WRITES: usize = 4;

/// The delay before a failed write of the status of a rejected pod is retried.
const RETRY: Duration = Duration::from_secs(1);

/// The state that the pods of a node share.
pub(crate) struct NodeContext {
    pub(crate) client: ObjectClient,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) images: ImageTable,
    pub(crate) processes: Processes,
    pub(crate) addresses: Addresses,
    /// Makes the network namespaces of the pods; `None` if they share the host's.
    pub(crate) networks: Option<Arc<PodNetworks>>,
    pub(crate) logs: LogStore,
    pub(crate) containers: RunningContainers,
    pub(crate) events: Recorder,
    /// The address at which the API server listens; `None` until it does.
    pub(crate) server: watch::Receiver<Option<SocketAddr>>,
    /// The endpoints of the API server, for pods.
    pub(crate) endpoints: ApiEndpoints,
    /// The Services, and the files with their names.
    pub(crate) hosts: Arc<Hosts>,
    /// Whether the cluster's DNS answers at the node's address.
    pub(crate) has_dns: bool,
    /// The node's capacity.
    pub(crate) capacity: Capacity,
    /// Limits concurrent status writes.
    pub(crate) writes: Semaphore,
    /// Held while the local storage of a pod is measured.
    pub(crate) measurements: Semaphore,
    /// What is counted of the probes.
    pub(crate) probes: ProbeCounts,
    /// The tokens of the pods.
    pub(crate) tokens: Tokens,
    /// The program that restricts the privileges of containers, once it is known whether there is one.
    pub(crate) setpriv: OnceCell<Option<PathBuf>>,
    /// Makes mount namespaces, once it is known whether the host has them.
    pub(crate) view_tools: OnceCell<Option<Arc<Tools>>>,
    /// Whether containers have file systems and processes of their own.
    pub(crate) isolates_containers: bool,
    /// Limits the memory of containers, once it is known whether that is possible.
    pub(crate) control_groups: OnceCell<Option<Arc<ControlGroups>>>,
    /// The block devices that pods use; `None` if the node doesn't mount any.
    pub(crate) devices: Option<Arc<Devices>>,
    /// Held while the files of a volume are replaced.
    pub(crate) volume_writes: Mutex<()>,
    /// The parent of the pods' directories.
    pub(crate) directory: PathBuf,
    /// The parent of the pods' directories in memory, if the host has a place for them.
    pub(crate) memory: Option<PathBuf>,
    /// All tasks of the node, for waiting on shutdown.
    pub(crate) tasks: TaskTracker,
}

impl NodeContext {
    /// Returns the address of the node, as pods see it.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.networks.as_ref().map_or(HOST_ADDRESS, |networks| networks.node())
    }

    /// Returns the policies for the pods; `None` if they can't be enforced.
    pub(crate) fn policies(&self) -> Option<&Arc<NetworkPolicies>> {
        self.networks.as_ref()?.policies()
    }

    /// Returns the directory of a pod, which is removed together with the pod.
    pub(crate) fn pod_directory(&self, uid: &str) -> PathBuf {
        self.directory.join(uid)
    }

    /// Returns the directory in memory of a pod, which is removed together with the pod. It exists once a volume is in
    /// it.
    pub(crate) fn memory_directory(&self, uid: &str) -> Option<PathBuf> {
        self.memory.as_ref().map(|memory| memory.join(uid))
    }
}

/// Runs the pods that are bound to the node, for as long as it is polled, and keeps `pods` up to date. Dropping the
/// future kills them.
pub(crate) async fn run(api: ApiServer, host: Arc<NodeContext>, pods: NodePods) {
    let feed = api.feed();
    let names = host.hosts.clone().follow();
    let kubelet = Kubelet {
        host,
        feed,
        pods,
        workers: BTreeMap::new(),
        tasks: JoinSet::new(),
        seen: Some(BTreeSet::new()),
        admission: Admission::default(),
        unadmitted: BTreeMap::new(),
        rejected: BTreeSet::new(),
        has_warned: false,
    };
    tokio::join!(kubelet.run(), names);
}

struct Kubelet {
    host: Arc<NodeContext>,
    feed: Feed,
    /// The pods of the node.
    pods: NodePods,
    /// The workers by the pod's UID.
    workers: BTreeMap<String, Handle>,
    tasks: JoinSet<()>,
    /// The pods in the snapshot so far; `None` once it is complete.
    seen: Option<BTreeSet<String>>,
    admission: Admission,
    /// The pods in the snapshot that the node hasn't seen before, by UID. They are admitted after those that it has.
    unadmitted: BTreeMap<String, Arc<Value>>,
    /// The rejected pods, by UID.
    rejected: BTreeSet<String>,
    /// Whether it was logged that policies have no effect.
    has_warned: bool,
}

/// A handle to a pod's worker.
struct Handle {
    namespace: String,
    messages: mpsc::UnboundedSender<Message>,
}

impl Handle {
    fn send(&self, message: Message) {
        // A worker that has ended doesn't need the message.
        let _ended = self.messages.send(message);
    }
}

impl Kubelet {
    async fn run(mut self) {
        loop {
            if self.feed.is_synced()
                && let Some(seen) = self.seen.take()
            {
                // Pods that are missing in the snapshot were deleted while the feed was behind.
                self.workers.retain(|uid, worker| {
                    if !seen.contains(uid) {
                        worker.send(Message::Gone);
                    }
                    seen.contains(uid)
                });
                if let Some(policies) = self.host.policies() {
                    policies.complete();
                }
                for (uid, pod) in std::mem::take(&mut self.unadmitted) {
                    self.admit(&uid, &pod);
                }
            }
            tokio::select! {
                biased;
                change = self.feed.next() => match change {
                    Ok(change) => self.take(&change),
                    Err(lagged) => {
                        tracing::info!(%lagged, "the node restarts from a snapshot");
                        self.seen = Some(BTreeSet::new());
                        self.pods.clear();
                        self.admission.clear();
                        self.rejected.clear();
                        self.host.hosts.restart();
                        if let Some(policies) = self.host.policies() {
                            policies.restart();
                        }
                    }
                },
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        tracing::error!(%error, "the worker of a pod has panicked");
                        self.workers.retain(|_, worker| !worker.messages.is_closed());
                    }
                }
            }
        }
    }

    fn take(&mut self, change: &Change) {
        match self.host.policies() {
            // Before a pod starts, they have all that was there before it.
            Some(policies) => policies.take(change),
            None if &*change.resource.storage == network_policy::STORAGE => self.warn_of_policies(),
            None => {}
        }
        match &*change.resource.storage {
            "/pods" => self.take_pod(change),
            "/nodes" if change.object()["metadata"]["name"] == NODE_NAME => self.admission.take_node(change.object()),
            storage @ ("/services" | "discovery.k8s.io/endpointslices") => {
                let Some(key) = Key::of(change.object()) else { return };
                let object = (change.kind != ChangeKind::Deleted).then(|| change.object().clone());
                match storage {
                    "/services" => self.host.hosts.take_service(key, object),
                    _ => self.host.hosts.take_slice(key, object),
                }
            }
            // Volumes lose the files of an optional one that is deleted.
            kind @ ("/configmaps" | "/secrets") => {
                let text = |field: &str| change.object()["metadata"][field].as_str().unwrap_or_default();
                let (namespace, name) = (text("namespace"), text("name").to_owned());
                let reference = match kind {
                    "/secrets" => Reference::Secret(name),
                    _ => Reference::ConfigMap(name),
                };
                for worker in self.workers.values().filter(|worker| worker.namespace == namespace) {
                    worker.send(Message::Configuration(reference.clone()));
                }
            }
            _ => {}
        }
    }

    /// Logs once that NetworkPolicies have no effect.
    fn warn_of_policies(&mut self) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                "NetworkPolicies have no effect: they require pods with network namespaces (`--pod-network namespaces`) \
                 and the program `nft` of nftables"
            );
        }
    }

    fn take_pod(&mut self, change: &Change) {
        let value = change.object();
        let Some(uid) = value["metadata"]["uid"].as_str().filter(|_| is_here(value)) else { return };
        self.pods.take(change);
        if change.kind == ChangeKind::Deleted {
            self.admission.release(uid);
            self.rejected.remove(uid);
            if let Some(worker) = self.workers.remove(uid) {
                worker.send(Message::Gone);
            }
            return;
        }
        if let Some(seen) = &mut self.seen {
            seen.insert(uid.into());
        }
        if self.workers.contains_key(uid) {
            self.admission.keep(uid, value);
        } else if has_ended(value) || self.rejected.contains(uid) {
            return;
        } else if !value["status"]["startTime"].is_null() {
            // The node has run it before.
            self.admission.keep(uid, value);
        } else if self.seen.is_some() {
            self.unadmitted.insert(uid.into(), value.clone());
            return;
        } else {
            return self.admit(uid, value);
        }
        self.start(uid, value);
    }

    /// Starts a new pod, or rejects it.
    fn admit(&mut self, uid: &str, pod: &Arc<Value>) {
        match self.admission.admit(uid, pod) {
            Ok(()) => self.start(uid, pod),
            Err(rejection) => {
                self.rejected.insert(uid.into());
                let reject = reject(self.host.clone(), pod.clone(), rejection);
                self.tasks.spawn(self.host.tasks.track_future(reject));
            }
        }
    }

    /// Passes a version of a pod to its worker.
    fn start(&mut self, uid: &str, value: &Value) {
        let pod = match Pod::deserialize(value) {
            Ok(pod) => Arc::new(pod),
            Err(error) => return tracing::error!(%error, uid, "failed to decode a stored pod"),
        };
        match self.workers.get(uid) {
            Some(worker) => worker.send(Message::Changed(pod)),
            None => self.begin(uid, pod),
        }
    }

    fn begin(&mut self, uid: &str, pod: Arc<Pod>) {
        let (messages, receiver) = mpsc::unbounded_channel();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        self.workers.insert(uid.into(), Handle { namespace, messages });
        let worker = Worker::new(self.host.clone(), pod);
        self.tasks.spawn(self.host.tasks.track_future(worker.run(receiver)));
    }
}

/// Sets the status of a pod that the node doesn't take.
async fn reject(host: Arc<NodeContext>, pod: Arc<Value>, rejection: Rejection) {
    if let Ok(pod) = Pod::deserialize(&*pod) {
        host.events.record(ObjectEvent::of_pod(&pod, true, &rejection.reason, rejection.message.clone()));
    }
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    let path = ObjectPath::core("pods", Some(text("namespace")), text("name"));
    let patch = rejection.patch(&pod, host.clock.now());
    let written = loop {
        match host.client.merge(&path, "/status", &patch).await {
            Ok(written) => break written,
            Err(error) if is_gone(&error) || is_conflict(&error) => return,
            Err(error) => tracing::debug!(%error, "failed to reject a pod"),
        }
        tokio::time::sleep(RETRY).await;
    };
    // The deletion of a pod that hasn't ended waits for the node.
    if !written["metadata"]["deletionTimestamp"].is_null() {
        let options = DeleteOptions { uid: Some(text("uid")), grace: Some(0), ..DeleteOptions::default() };
        if let Err(error) = host.client.delete(&path, &options).await {
            tracing::debug!(%error, "failed to remove a rejected pod");
        }
    }
}

/// Returns whether a pod is bound to the node.
pub(crate) fn is_here(pod: &Value) -> bool {
    pod["spec"]["nodeName"] == NODE_NAME
}

/// Returns whether a pod has ended.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}
