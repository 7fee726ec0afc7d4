//! The node: this host, as the machine that the cluster's pods run on.
//!
//! * [`image`]: the programs that run in place of images
//! * [`pod`]: the lifecycle of a pod
//! * [`environment`], [`resource`] and [`volume`]: variables, resource fields and volumes of containers
//! * [`volume_files`] and [`tokens`]: the files of volumes, and the tokens of service accounts in them
//! * [`view`]: volumes at their mount paths
//! * [`process`] and [`process_streams`]: process groups, and their streams
//! * [`exec`]: connections to running containers
//! * [`log`]: container logs
//! * [`proxy`] and [`service_env`]: the routing and discovery of services
//! * [`object`]: the Node object and its lease
//! * [`node_directory`]: the node's directory
//! * [`simulation`]: pods without processes
//! * [`usage`]: what the node and its containers use

pub(crate) mod address;
mod backoff;
mod environment;
pub(crate) mod exec;
mod image;
pub(crate) mod log;
pub(crate) mod node_directory;
pub(crate) mod object;
mod pod;
pub(crate) mod process;
mod process_streams;
pub(crate) mod proxy;
pub(crate) mod resource;
mod service_env;
pub(crate) mod simulation;
mod tokens;
pub(crate) mod usage;
mod view;
mod volume;
mod volume_files;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
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

pub use self::image::{ImageTable, Program};
use self::{
    address::Addresses,
    environment::Reference,
    exec::RunningContainers,
    log::LogStore,
    object::Capacity,
    pod::worker::{Message, Worker},
    process::Processes,
    tokens::Tokens,
    view::Tools,
};
use crate::{api_endpoints::ApiEndpoints, controllers::reconcile::Key, events::Recorder, object_client::ObjectClient};

/// The name of the only node.
pub(crate) const NODE_NAME: &str = "kubewright";

/// The number of pods that write their status concurrently. Unlike for the kubelet, a write costs CPU time on this
/// machine, so that unlimited writes would starve everything else if hundreds of pods end at once. The kubelet has a
/// similar limit.
pub(crate) const WRITES: usize = 4;

/// The state that the pods of a node share.
pub(crate) struct NodeContext {
    pub(crate) client: ObjectClient,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) images: ImageTable,
    pub(crate) processes: Processes,
    pub(crate) addresses: Addresses,
    pub(crate) logs: LogStore,
    pub(crate) containers: RunningContainers,
    pub(crate) events: Recorder,
    /// The address at which the API server listens; `None` until it does.
    pub(crate) server: watch::Receiver<Option<SocketAddr>>,
    /// The endpoints of the API server, for pods.
    pub(crate) endpoints: ApiEndpoints,
    /// All services.
    pub(crate) services: Arc<Mutex<BTreeMap<Key, Arc<Value>>>>,
    /// The node's capacity.
    pub(crate) capacity: Capacity,
    /// Limits concurrent status writes.
    pub(crate) writes: Semaphore,
    /// The tokens of the pods.
    pub(crate) tokens: Tokens,
    /// Makes mount namespaces, once it is known whether the host has them.
    pub(crate) view_tools: OnceCell<Option<Arc<Tools>>>,
    /// Held while the files of a volume are replaced.
    pub(crate) volume_writes: Mutex<()>,
    /// The parent of the pods' directories.
    pub(crate) directory: PathBuf,
    /// All tasks of the node, for waiting on shutdown.
    pub(crate) tasks: TaskTracker,
}

impl NodeContext {
    /// Returns the service variables for containers in a namespace. For the service `kubernetes`, they contain the
    /// server's own address instead.
    pub(crate) fn service_env(&self, namespace: &str) -> Vec<(String, String)> {
        let services = self.services.lock();
        let here = services.range(Key::first_of(namespace)..).take_while(|(key, _)| key.namespace == namespace);
        service_env::variables(here.filter(|(key, _)| key.name != "kubernetes").map(|(_, service)| &**service))
    }

    /// Returns the directory of a pod, which is removed together with the pod.
    pub(crate) fn pod_directory(&self, uid: &str) -> PathBuf {
        self.directory.join(uid)
    }
}

/// Runs the pods that are bound to the node, for as long as it is polled. Dropping the future kills them.
pub(crate) async fn run(api: ApiServer, host: Arc<NodeContext>) {
    let feed = api.feed();
    let kubelet = Kubelet { host, feed, workers: BTreeMap::new(), tasks: JoinSet::new(), seen: Some(BTreeSet::new()) };
    kubelet.run().await;
}

struct Kubelet {
    host: Arc<NodeContext>,
    feed: Feed,
    /// The workers by the pod's UID.
    workers: BTreeMap<String, Handle>,
    tasks: JoinSet<()>,
    /// The pods in the snapshot so far; `None` once it is complete.
    seen: Option<BTreeSet<String>>,
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
            }
            tokio::select! {
                biased;
                change = self.feed.next() => match change {
                    Ok(change) => self.take(&change),
                    Err(lagged) => {
                        tracing::info!(%lagged, "the node restarts from a snapshot");
                        self.seen = Some(BTreeSet::new());
                        self.host.services.lock().clear();
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
        match &*change.resource.storage {
            "/pods" => self.take_pod(change),
            "/services" => {
                let Some(key) = Key::of(&change.object) else { return };
                let mut services = self.host.services.lock();
                match change.kind {
                    ChangeKind::Deleted => services.remove(&key),
                    _ => services.insert(key, change.object.clone()),
                };
            }
            kind @ ("/configmaps" | "/secrets") if change.kind != ChangeKind::Deleted => {
                let text = |field: &str| change.object["metadata"][field].as_str().unwrap_or_default();
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

    fn take_pod(&mut self, change: &Change) {
        let value = &change.object;
        let Some(uid) = value["metadata"]["uid"].as_str().filter(|_| is_here(value)) else { return };
        if change.kind == ChangeKind::Deleted {
            if let Some(worker) = self.workers.remove(uid) {
                worker.send(Message::Gone);
            }
            return;
        }
        if let Some(seen) = &mut self.seen {
            seen.insert(uid.into());
        }
        if !self.workers.contains_key(uid) && has_ended(value) {
            return;
        }
        let pod = match Pod::deserialize(&**value) {
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

/// Returns whether a pod is bound to the node.
pub(crate) fn is_here(pod: &Value) -> bool {
    pod["spec"]["nodeName"] == NODE_NAME
}

/// Returns whether a pod has ended.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}
