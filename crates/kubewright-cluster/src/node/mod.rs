//! The node: the machine that the cluster's pods run on, which is this host.
//!
//! * [`account`]: a pod's service account
//! * [`home`]: the node's folder
//! * [`image`]: which program plays which image
//! * [`pod`]: a pod's life
//! * [`environment`], [`resource`] and [`volume`]: what a container is told, and finds
//! * [`process`]: process groups
//! * [`log`] and [`logs`]: what containers write
//! * [`proxy`] and [`links`]: how services are reached, and found
//! * [`object`]: the Node object and its lease
//! * [`simulation`]: pods without processes

mod account;
pub(crate) mod address;
mod backoff;
mod environment;
pub(crate) mod home;
mod image;
mod links;
pub(crate) mod log;
pub(crate) mod logs;
pub(crate) mod object;
mod pod;
pub(crate) mod process;
pub(crate) mod proxy;
mod resource;
pub(crate) mod simulation;
mod volume;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
};

use k8s_openapi::api::core::v1::Pod;
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use kubewright_apiserver::{ApiServer, Change, ChangeKind, Feed};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
};
use tokio_util::task::TaskTracker;

pub use self::image::{ImageTable, Program};
use self::{
    address::Addresses,
    logs::Logs,
    object::Capacity,
    pod::worker::{Message, Worker},
    process::Processes,
};
use crate::{access::Access, controllers::reconcile::Key, doors::Doors, events::Recorder};

/// The name of the one node.
pub(crate) const NODE_NAME: &str = "kubewright";

/// How many pods write their status at a time. Hundreds that end in one moment would keep everybody else waiting: a write is
/// work for a processor of this machine, where the kubelet, which limits itself likewise, only waits for an answer.
pub(crate) const WRITES: usize = 4;

/// What the pods of a node share.
pub(crate) struct Host {
    pub(crate) access: Access,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) images: ImageTable,
    pub(crate) processes: Processes,
    pub(crate) addresses: Addresses,
    pub(crate) logs: Logs,
    pub(crate) events: Recorder,
    /// Where the API server listens, if it does.
    pub(crate) server: watch::Receiver<Option<SocketAddr>>,
    /// How pods reach the API server.
    pub(crate) doors: Doors,
    /// The services that there are.
    pub(crate) services: Arc<Mutex<BTreeMap<Key, Arc<Value>>>>,
    /// What the node has.
    pub(crate) capacity: Capacity,
    /// Who writes.
    pub(crate) writes: Semaphore,
    /// Where pods have their directories.
    pub(crate) directory: PathBuf,
    /// Every task of the node, for waiting until they have ended.
    pub(crate) tasks: TaskTracker,
}

impl Host {
    /// The variables that tell a namespace's containers of its services. The API server's own is told of where it listens.
    pub(crate) fn links(&self, namespace: &str) -> Vec<(String, String)> {
        let services = self.services.lock();
        let here = services.range(Key::first_of(namespace)..).take_while(|(key, _)| key.namespace == namespace);
        links::variables(here.filter(|(key, _)| key.name != "kubernetes").map(|(_, service)| &**service))
    }

    /// The directory of a pod; removed when the pod is gone.
    pub(crate) fn pod_directory(&self, uid: &str) -> PathBuf {
        self.directory.join(uid)
    }
}

/// Runs the pods that are bound to the node, for as long as it is polled. Dropping the future kills them.
pub(crate) async fn run(api: ApiServer, host: Arc<Host>) {
    let feed = api.feed();
    let keeper = Keeper { host, feed, workers: BTreeMap::new(), tasks: JoinSet::new(), seen: Some(BTreeSet::new()) };
    keeper.run().await;
}

struct Keeper {
    host: Arc<Host>,
    feed: Feed,
    /// By the pod's UID.
    workers: BTreeMap<String, Handle>,
    tasks: JoinSet<()>,
    /// The pods that the snapshot, while it lasts, has told of.
    seen: Option<BTreeSet<String>>,
}

/// How a worker is reached.
struct Handle {
    namespace: String,
    messages: mpsc::UnboundedSender<Message>,
}

impl Handle {
    fn tell(&self, message: Message) {
        // A worker that has ended doesn't need to know.
        let _ended = self.messages.send(message);
    }
}

impl Keeper {
    async fn run(mut self) {
        loop {
            if self.feed.is_synced()
                && let Some(seen) = self.seen.take()
            {
                // What the snapshot doesn't have went while the feed was behind.
                self.workers.retain(|uid, worker| {
                    if !seen.contains(uid) {
                        worker.tell(Message::Gone);
                    }
                    seen.contains(uid)
                });
            }
            tokio::select! {
                biased;
                change = self.feed.next() => match change {
                    Ok(change) => self.take(&change),
                    Err(lagged) => {
                        tracing::info!(%lagged, "the node begins anew");
                        self.seen = Some(BTreeSet::new());
                        self.host.services.lock().clear();
                    }
                },
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        tracing::error!(%error, "a pod's worker has panicked");
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
            "/configmaps" | "/secrets" if change.kind != ChangeKind::Deleted => {
                let namespace = change.object["metadata"]["namespace"].as_str().unwrap_or_default();
                for worker in self.workers.values().filter(|worker| worker.namespace == namespace) {
                    worker.tell(Message::Configuration);
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
                worker.tell(Message::Gone);
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
            Err(error) => return tracing::error!(%error, uid, "a stored pod can't be read"),
        };
        match self.workers.get(uid) {
            Some(worker) => worker.tell(Message::Changed(pod)),
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

/// Whether a pod is bound to the node.
pub(crate) fn is_here(pod: &Value) -> bool {
    pod["spec"]["nodeName"] == NODE_NAME
}

/// Whether a pod has come to its end.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}
