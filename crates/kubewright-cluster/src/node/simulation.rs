//! Pods without processes: each becomes running and ready immediately or after a delay, and is removed immediately when
//! it is deleted.
//!
//! A simulated pod runs until [`Simulation::finish`] ends it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{ApiServer, Change, ChangeKind, StoredObject};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{
    NODE_NAME,
    address::{Addresses, HOST_ADDRESS, Lease},
    admission::{Admission, Rejection},
    has_ended, is_here,
    pod::{
        container::{Moment, Role, RunEnd},
        machine::{Effect, Machine},
        status::patch,
    },
    pods::NodePods,
    usage::SimulatedUsage,
};
use crate::{
    events::whole_seconds,
    object_client::{DeleteOptions, ObjectClient, ObjectPath, is_conflict, is_gone},
};

/// The number of pods that are written concurrently.
const CONCURRENCY: usize = 64;
/// The maximum number of attempts for a write.
const TRIES: u32 = 5;

/// An error that prevents a simulated pod from being ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinishError {
    /// The pod doesn't exist.
    #[error("pod {1}/{0} not found")]
    NoPod(String, String),
    /// The pod isn't running.
    #[error("pod {0} is not running")]
    NotRunning(String),
    /// The cluster's pods aren't simulated.
    #[error("the pods of this cluster are not simulated: build it with Pods::Simulate")]
    NotSimulated,
    /// The API server refused.
    #[error("failed to write the status of the pod")]
    Api(#[from] kube::Error),
}

/// The node of a cluster with simulated pods.
#[derive(Clone)]
pub(crate) struct Simulation {
    client: ObjectClient,
    clock: SharedClock,
    /// The time that a pod takes to start.
    start: Duration,
    addresses: Addresses,
    /// The pods' addresses, by UID.
    leases: Arc<Mutex<BTreeMap<String, Lease>>>,
    permits: Arc<Semaphore>,
    usage: SimulatedUsage,
    /// The pods of the node.
    pods: NodePods,
    admission: Arc<Mutex<Admission>>,
}

impl Simulation {
    /// Creates a node whose pods are running `start` after they were bound. It keeps `pods` up to date.
    pub(crate) fn new(
        client: ObjectClient,
        clock: SharedClock,
        start: Duration,
        (usage, pods): (SimulatedUsage, NodePods),
    ) -> Self {
        let permits = Arc::new(Semaphore::new(CONCURRENCY));
        let (addresses, leases, admission) = (Addresses::default(), Arc::default(), Arc::default());
        Self { client, clock, start, addresses, leases, permits, usage, pods, admission }
    }

    /// Returns what the pods use.
    pub(crate) fn usage(&self) -> &SimulatedUsage {
        &self.usage
    }

    /// Simulates the pods that are bound to the node, for as long as it is polled.
    pub(crate) async fn run(self, api: ApiServer) {
        let mut feed = api.feed();
        let mut work = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(()) = work.next() => {}
                change = feed.next() => match change {
                    Ok(change) => work.extend(self.wanted(&change).map(|action| self.perform(action))),
                    Err(lagged) => {
                        tracing::info!(%lagged, "the simulated node restarts from a snapshot");
                        // It is unknown which pods are gone. Addresses are only reused after all others have been used.
                        self.leases.lock().clear();
                        self.pods.clear();
                        self.admission.lock().clear();
                    }
                },
            }
        }
    }

    /// Returns the action that a change requires.
    fn wanted(&self, change: &Change) -> Option<PodAction> {
        let storage = &*change.resource.storage;
        if storage == "/nodes" && change.object()["metadata"]["name"] == NODE_NAME {
            self.admission.lock().take_node(change.object());
        }
        if storage != "/pods" || !is_here(change.object()) {
            return None;
        }
        let pod = change.object();
        self.pods.take(change);
        let uid = pod["metadata"]["uid"].as_str()?;
        let mut admission = self.admission.lock();
        if change.kind == ChangeKind::Deleted {
            admission.release(uid);
            self.leases.lock().remove(uid);
            return None;
        }
        // Pods that the node has started before aren't checked again.
        if admission.has(uid) || !pod["status"]["startTime"].is_null() {
            admission.keep(uid, pod);
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            let before = change.previous.as_ref().map(StoredObject::value);
            let begins = before.is_none_or(|before| before["metadata"]["deletionTimestamp"].is_null());
            return begins.then(|| PodAction::Remove(pod.clone()));
        }
        if pod["status"]["phase"] == "Running" && has_changed(pod) {
            return Some(PodAction::Update(pod.clone()));
        }
        let fresh = !has_ended(pod) && pod["status"]["phase"] != "Running";
        // A pod is new when it is created or bound. Later changes before it runs are irrelevant.
        let met = change.previous.as_ref().is_none_or(|before| !is_here(&before.value()));
        if !fresh || !met {
            return None;
        }
        let admitted = if admission.has(uid) { Ok(()) } else { admission.admit(uid, pod) };
        match admitted {
            Ok(()) => Some(PodAction::Start(pod.clone())),
            Err(rejection) => Some(PodAction::Reject(pod.clone(), rejection)),
        }
    }

    async fn perform(&self, mut action: PodAction) {
        if let PodAction::Start(_) = &action
            && !self.start.is_zero()
        {
            tokio::time::sleep(self.start).await;
        }
        let Ok(_permit) = self.permits.acquire().await else { return };
        for attempt in 0..TRIES {
            let result = match &action {
                PodAction::Start(pod) => self.begin(pod).await,
                PodAction::Reject(pod, rejection) => self.reject(pod, rejection).await,
                PodAction::Update(pod) => self.update(pod).await,
                PodAction::Remove(pod) => self.remove(pod).await,
            };
            match result {
                // Others have written the pod meanwhile, such as a condition.
                Err(error) if is_conflict(&error) => match &mut action {
                    PodAction::Start(pod) | PodAction::Update(pod) => {
                        let Ok(Some(found)) = self.client.get(&address(pod)).await else { return };
                        if found["metadata"]["uid"] != pod["metadata"]["uid"] {
                            return;
                        }
                        *pod = Arc::new(found);
                    }
                    PodAction::Reject(..) | PodAction::Remove(_) => return,
                },
                Err(error) if !is_gone(&error) => {
                    tracing::debug!(%error, "failed to write a simulated pod");
                    tokio::time::sleep(Duration::from_millis(100) * 2u32.pow(attempt)).await;
                }
                _ => return,
            }
        }
    }

    async fn begin(&self, value: &Value) -> Result<(), kube::Error> {
        let pod = Pod::deserialize(value).map_err(kube::Error::SerdeError)?;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let address = if pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)) {
            HOST_ADDRESS.to_string()
        } else {
            self.leases.lock().entry(uid).or_insert_with(|| self.addresses.take()).address()
        };
        let now = self.now();
        let machine = started(Arc::new(pod), address, now);
        self.write(value, &machine.status(now.wall)).await
    }

    async fn reject(&self, pod: &Value, rejection: &Rejection) -> Result<(), kube::Error> {
        let patch = rejection.patch(pod, self.clock.now());
        self.client.merge(&address(pod), "/status", &patch).await.map(drop)
    }

    /// Follows a change of a running pod's spec: starts new ephemeral containers, and accepts other resources.
    async fn update(&self, value: &Value) -> Result<(), kube::Error> {
        let pod = Pod::deserialize(value).map_err(kube::Error::SerdeError)?;
        let before = pod.status.clone().unwrap_or_default();
        let now = self.now();
        let mut status = resumed(pod, now).status(now.wall);
        keep_states(before.container_statuses, &mut status.container_statuses);
        keep_states(before.init_container_statuses, &mut status.init_container_statuses);
        keep_states(before.ephemeral_container_statuses, &mut status.ephemeral_container_statuses);
        self.write(value, &status).await
    }

    async fn remove(&self, pod: &Value) -> Result<(), kube::Error> {
        let uid = pod["metadata"]["uid"].as_str();
        self.client.delete(&address(pod), &DeleteOptions { uid, grace: Some(0), ..DeleteOptions::default() }).await
    }

    async fn write(&self, pod: &Value, status: &PodStatus) -> Result<(), kube::Error> {
        let [uid, version] =
            ["uid", "resourceVersion"].map(|field| pod["metadata"][field].as_str().unwrap_or_default());
        self.client.merge(&address(pod), "/status", &patch(uid, version, status)).await.map(drop)
    }

    /// Ends the main containers of a running pod with an exit code; the restart policy decides what follows.
    pub(crate) async fn finish(&self, namespace: &str, name: &str, code: i32) -> Result<(), FinishError> {
        let found = self.client.get(&ObjectPath::core("pods", Some(namespace), name)).await?;
        let value = found.ok_or_else(|| FinishError::NoPod(name.into(), namespace.into()))?;
        if value["status"]["phase"] != "Running" {
            return Err(FinishError::NotRunning(name.into()));
        }
        let pod = Pod::deserialize(&value).map_err(kube::Error::SerdeError)?;
        let now = self.now();
        let mut machine = resumed(pod, now);
        let main = (0..machine.containers.len()).filter(|index| machine.containers[*index].role == Role::Main);
        for index in main.collect::<Vec<_>>() {
            machine.ended(index, RunEnd::exited(code), now);
        }
        settle(&mut machine, now);
        Ok(self.write(&value, &machine.status(now.wall)).await?)
    }

    fn now(&self) -> Moment {
        Moment { wall: whole_seconds(self.clock.now()), monotonic: self.clock.monotonic() }
    }
}

/// Returns whether a pod's spec is newer than its status.
fn has_changed(pod: &Value) -> bool {
    pod["metadata"]["generation"].as_i64() > pod["status"]["observedGeneration"].as_i64()
}

/// Restores the runs of the containers that had a status before.
fn keep_states(before: Option<Vec<ContainerStatus>>, after: &mut Option<Vec<ContainerStatus>>) {
    let before = before.unwrap_or_default();
    for status in after.iter_mut().flatten() {
        if let Some(before) = before.iter().find(|before| before.name == status.name) {
            status.state.clone_from(&before.state);
            status.last_state.clone_from(&before.last_state);
            status.container_id.clone_from(&before.container_id);
        }
    }
}

/// An action on a pod.
enum PodAction {
    Start(Arc<Value>),
    Reject(Arc<Value>, Rejection),
    Update(Arc<Value>),
    Remove(Arc<Value>),
}

/// Returns a pod whose init containers have succeeded and whose other containers run.
fn started(pod: Arc<Pod>, address: String, now: Moment) -> Machine {
    let mut machine = Machine::new(pod, address, now).without_probes();
    settle(&mut machine, now);
    machine
}

/// Returns a pod that runs as its status says.
fn resumed(pod: Pod, now: Moment) -> Machine {
    let status = pod.status.clone().unwrap_or_default();
    let mut machine = started(Arc::new(pod), status.pod_ip.unwrap_or_default(), now);
    let statuses = status.container_statuses.unwrap_or_default();
    for record in &mut machine.containers {
        let before = statuses.iter().find(|before| before.name == record.name);
        record.restarts = before.map_or(0, |before| before.restart_count);
    }
    machine
}

/// Executes the machine's effects until there are none.
fn settle(machine: &mut Machine, now: Moment) {
    loop {
        let effects = machine.step(now);
        let mut moved = false;
        for effect in effects {
            let (index, code) = match effect {
                Effect::Start(index) => {
                    let uid = machine.pod.metadata.uid.clone().unwrap_or_default();
                    let id = format!("{uid}-{index}-{}", machine.containers[index].restarts);
                    machine.started(index, id, None, now);
                    match machine.containers[index].role {
                        Role::Init => (index, 0),
                        Role::Sidecar | Role::Main | Role::Ephemeral => {
                            moved = true;
                            continue;
                        }
                    }
                }
                Effect::Terminate(index) => (index, 143),
                Effect::Kill(index) => (index, 137),
                Effect::Event(_) | Effect::PreStop(_) | Effect::Probe(..) | Effect::Remove => continue,
            };
            machine.ended(index, RunEnd::exited(code), now);
            moved = true;
        }
        if !moved {
            return;
        }
    }
}

fn address(pod: &Value) -> ObjectPath {
    let text = |field: &str| pod["metadata"][field].as_str();
    ObjectPath::core("pods", text("namespace"), text("name").unwrap_or_default())
}
