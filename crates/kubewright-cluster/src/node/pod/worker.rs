//! The worker of one pod: executes the effects of its [`Machine`], and writes its status.

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kubewright_apimachinery::watch;
use tokio::{
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{
    container::{Moment, State},
    machine::{Effect, Event, Machine},
    prepare::PlacedPod,
    probe::ProbeType,
    prober::Prober,
    run::{ContainerEvent, hook_failed, run_container},
    spec,
    status::patch,
    storage::{MEASURED_EVERY, StorageLimits},
};
use crate::{
    events::{ObjectEvent, whole_seconds},
    node::{
        NodeContext,
        address::Lease,
        environment::Reference,
        mounts,
        network::PodSandbox,
        probe_counts::{Probed, name_of},
        process::Process,
        view::SharedProcesses,
        volume,
    },
    object_client::{DeleteOptions, ObjectPath, is_conflict, is_gone},
};

/// The delay before a failed or overwritten status write is retried.
const RETRY: Duration = Duration::from_secs(1);

/// The time for which the object of a pod exists after a graceful deletion, even if its processes end at once, so that
/// clients can still read it. Kubernetes' kubelet needs at least a second to notice that containers have ended, and
/// clients rely on it.
const VISIBLE: Duration = Duration::from_millis(200);
/// What is added to the grace period of a container whose hook has taken all of it.
const EXTENSION: Duration = Duration::from_secs(2);

/// A message to a worker.
#[derive(Debug)]
pub(crate) enum Message {
    /// The pod's object has changed.
    Changed(Arc<Pod>),
    /// A ConfigMap or Secret of the pod's namespace has changed.
    Configuration(Reference),
    /// The pod's object is gone.
    Gone,
}

/// The worker of one pod.
pub(crate) struct Worker {
    host: Arc<NodeContext>,
    machine: Machine,
    /// The version of the pod's object that the state machine has.
    version: u64,
    processes: BTreeMap<usize, (Arc<Process>, Arc<Prober>)>,
    /// The `preStop` hooks that have begun; a token is cancelled at the end of its hook, and ends it.
    hooks: BTreeMap<usize, CancellationToken>,
    /// Cancelled when the pod has to end.
    stopping: CancellationToken,
    /// A task for each container that starts or runs, and for each probe and hook in progress.
    tasks: JoinSet<()>,
    /// The pod, for volumes that follow changes.
    changes: watch::Sender<Arc<Pod>>,
    events: (mpsc::UnboundedSender<ContainerEvent>, mpsc::UnboundedReceiver<ContainerEvent>),
    /// The last status written, and the monotonic time of the write.
    written: Option<(PodStatus, Duration)>,
    /// The monotonic time at which the deletion of the pod was seen.
    deleted_at: Option<Duration>,
    /// The monotonic time from which on the object may be removed.
    remove_at: Option<Duration>,
    /// The monotonic time before which no status is written.
    write_at: Duration,
    /// The limits of the pod's local storage, if it has any, and the monotonic time of the next measurement.
    storage: Option<(Arc<StorageLimits>, Option<Duration>)>,
    /// The network of the pod; `None` for that of the host.
    sandbox: Option<Arc<PodSandbox>>,
    /// The processes of the pod, if its containers share them.
    shared: Arc<SharedProcesses>,
    _address: Lease,
}

impl Worker {
    /// Creates the worker of a pod that the node accepts.
    pub(crate) fn new(host: Arc<NodeContext>, pod: Arc<Pod>) -> Self {
        let lease = host.addresses.take();
        let version = version(&pod);
        let changes = watch::Sender::new(pod.clone());
        let own_network = pod.spec.as_ref().is_none_or(|spec| spec.host_network != Some(true));
        let networks = host.networks.as_ref().filter(|_| own_network);
        let sandbox = networks.map(|networks| Arc::new(PodSandbox::new(networks.clone(), lease.ip())));
        let address = if own_network { lease.address() } else { host.address().to_string() };
        let now = now(&host);
        let storage = StorageLimits::of(&pod).map(|limits| (Arc::new(limits), Some(now.monotonic + MEASURED_EVERY)));
        let mut machine = Machine::new(pod, address, now).at_host(host.address());
        machine.resume(now.wall);
        Self {
            host,
            machine,
            version,
            processes: BTreeMap::new(),
            hooks: BTreeMap::new(),
            stopping: CancellationToken::new(),
            tasks: JoinSet::new(),
            changes,
            events: mpsc::unbounded_channel(),
            written: None,
            deleted_at: None,
            remove_at: None,
            write_at: Duration::ZERO,
            storage,
            sandbox,
            shared: Arc::default(),
            _address: lease,
        }
    }

    /// Runs the pod until its object is gone. Dropping the future kills all its processes.
    pub(crate) async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        loop {
            self.act();
            self.measure();
            if self.report().await {
                self.remove().await;
            }
            let wake = self.wake();
            let monotonic = self.host.clock.monotonic();
            let timer = async {
                match wake {
                    Some(at) => sleep(at.saturating_sub(monotonic)).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                message = messages.recv() => if self.handle(message) || self.handle_pending(&mut messages) { break },
                Some(event) = self.events.1.recv() => self.handle_container_event(event),
                () = timer => {}
            }
            while let Ok(event) = self.events.1.try_recv() {
                self.handle_container_event(event);
            }
        }
        self.clean_up().await;
    }

    /// Handles a message. Returns true if the pod is gone.
    fn handle(&mut self, message: Option<Message>) -> bool {
        match message {
            Some(Message::Changed(pod)) => self.observe(pod),
            Some(Message::Configuration(changed)) => {
                self.machine.configuration_changed(now(&self.host));
                if volume::uses(&self.machine.pod, &changed) {
                    self.changes.send_replace(self.machine.pod.clone());
                }
            }
            Some(Message::Gone) | None => return true,
        }
        false
    }

    fn handle_pending(&mut self, messages: &mut mpsc::UnboundedReceiver<Message>) -> bool {
        while let Ok(message) = messages.try_recv() {
            if self.handle(Some(message)) {
                return true;
            }
        }
        false
    }

    /// Processes a version of the object, from the feed or from the response to a write, unless a later version is
    /// known.
    fn observe(&mut self, pod: Arc<Pod>) {
        let version = version(&pod);
        if version > self.version {
            self.version = version;
            if pod.metadata.deletion_timestamp.is_some() {
                self.deleted_at.get_or_insert(self.host.clock.monotonic());
            }
            let old = &self.machine.pod.metadata;
            if old.labels != pod.metadata.labels || old.annotations != pod.metadata.annotations {
                self.changes.send_replace(pod.clone());
            }
            self.machine.observe(pod, now(&self.host));
        }
    }

    fn handle_container_event(&mut self, event: ContainerEvent) {
        let now = now(&self.host);
        match event {
            ContainerEvent::Started(index, id, process, prober, identity) => {
                self.processes.insert(index, (process, prober));
                self.hooks.remove(&index);
                self.machine.started(index, id, Some(identity), now);
            }
            ContainerEvent::Refused(index, why) => self.machine.refused(index, why, now),
            ContainerEvent::Ended(index, end) => {
                self.processes.remove(&index);
                self.hooks.get(&index).iter().for_each(|hook| hook.cancel());
                self.machine.ended(index, end, now);
            }
            ContainerEvent::Probed(index, id, probe_type, outcome) => {
                self.machine.probed(index, &id, probe_type, outcome, now)
            }
            ContainerEvent::Pod(event) => self.record(event),
            ContainerEvent::Measured(Some(exceeded)) => self.machine.evict(exceeded, now),
            ContainerEvent::Measured(None) => {
                if let Some((_, at)) = &mut self.storage {
                    *at = Some(now.monotonic + MEASURED_EVERY);
                }
            }
        }
        while self.tasks.try_join_next().is_some() {}
    }

    /// Executes the effects that are due.
    fn act(&mut self) {
        let effects = self.machine.step(now(&self.host));
        if self.machine.stop.is_some() {
            self.stopping.cancel();
        }
        for effect in effects {
            match effect {
                Effect::Start(index) => {
                    if let Some(container) = self.machine.spec(index) {
                        let (pod, address) = (self.machine.pod.clone(), self.machine.address.clone());
                        let placed = PlacedPod {
                            pod,
                            address,
                            changes: self.changes.subscribe(),
                            sandbox: self.sandbox.clone(),
                            processes: self.shared.clone(),
                            stopping: self.stopping.clone(),
                        };
                        let run = self.machine.containers[index].restarts;
                        let events = self.events.0.clone();
                        let host = self.host.clone();
                        let container = container.into_owned();
                        self.tasks.spawn(run_container(host, placed, container, index, run, events));
                    }
                }
                Effect::PreStop(index) => drop(self.pre_stop(index)),
                Effect::Terminate(index) => self.terminate(index),
                Effect::Kill(index) => self.kill(index),
                Effect::Probe(index, probe_type) => self.probe(index, probe_type),
                Effect::Event(event) => self.record(event),
                Effect::Remove => {
                    let is_graceful = self.machine.pod.metadata.deletion_grace_period_seconds != Some(0);
                    let visible = self.deleted_at.filter(|_| is_graceful).map(|at| at + VISIBLE);
                    self.remove_at = Some(visible.unwrap_or_default());
                }
            }
        }
    }

    fn record(&self, event: Event) {
        let pod = &self.machine.pod;
        let field_path = event.container.and_then(|name| spec::field_path(pod, &name)).unwrap_or_default();
        let event = ObjectEvent::of_pod(pod, event.warning, event.reason, event.message);
        self.host.events.record(ObjectEvent { field_path, ..event });
    }

    /// Asks a container to end, after its `preStop` hook if it has one. The grace period includes the hook.
    fn terminate(&mut self, index: usize) {
        let hook = self.pre_stop(index);
        let Some((process, _)) = self.processes.get(&index) else { return };
        let Some(hook) = hook else { return process.terminate() };
        let process = process.clone();
        self.tasks.spawn(async move {
            hook.cancelled().await;
            process.terminate();
        });
    }

    /// Kills a container. If its `preStop` hook has taken the whole grace period, the container is asked to end first,
    /// for which it has two seconds more, as with the kubelet.
    fn kill(&mut self, index: usize) {
        let Some((process, _)) = self.processes.get(&index) else { return };
        let Some(hook) = self.hooks.get(&index).filter(|hook| !hook.is_cancelled()) else { return process.kill() };
        hook.cancel();
        let process = process.clone();
        process.terminate();
        self.tasks.spawn(async move {
            sleep(EXTENSION).await;
            process.kill();
        });
    }

    /// Runs the `preStop` hook of a container, unless it has begun. Returns what tells its end; `None` if there is no
    /// hook.
    fn pre_stop(&mut self, index: usize) -> Option<CancellationToken> {
        if let Some(begun) = self.hooks.get(&index) {
            return Some(begun.clone());
        }
        let (_, prober) = self.processes.get(&index)?;
        let hook = prober.container.lifecycle.as_ref()?.pre_stop.clone()?;
        let (prober, events, ended) = (prober.clone(), self.events.0.clone(), CancellationToken::new());
        self.hooks.insert(index, ended.clone());
        let (token, guard) = (ended.clone(), ended.clone().drop_guard());
        self.tasks.spawn(async move {
            if let Some(Err(why)) = token.run_until_cancelled(prober.hook(&hook)).await {
                // If the pod is gone, there is no receiver any more.
                let _gone = events.send(ContainerEvent::Pod(hook_failed(&prober.container.name, "PreStop", &why)));
            }
            drop(guard);
        });
        Some(ended)
    }

    /// Runs a probe.
    fn probe(&mut self, index: usize, probe_type: ProbeType) {
        let running = |state: &State| match state {
            State::Running(running) => Some(running.id.clone()),
            _ => None,
        };
        let Some(id) = running(&self.machine.containers[index].state) else { return };
        let Some((_, prober)) = self.processes.get(&index) else { return };
        let Some(probe) = probe_type.of(&prober.container).cloned() else { return };
        let (prober, events) = (prober.clone(), self.events.0.clone());
        let (clock, counts) = (self.host.clock.clone(), self.host.probes.clone());
        let probed = self.probed(&prober.container.name, probe_type);
        self.tasks.spawn(async move {
            let begun = clock.monotonic();
            let outcome = prober.probe(&probe).await;
            counts.add(probed, &outcome, clock.monotonic().saturating_sub(begun));
            let _gone = events.send(ContainerEvent::Probed(index, id, probe_type, outcome));
        });
    }

    fn probed(&self, container: &str, probe_type: ProbeType) -> Probed {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let ObjectMeta { namespace, name, uid, .. } = &self.machine.pod.metadata;
        Probed {
            container: container.into(),
            namespace: text(namespace),
            pod: text(name),
            uid: text(uid),
            kind: name_of(probe_type),
        }
    }

    /// Measures the local storage if it is time to.
    fn measure(&mut self) {
        let monotonic = self.host.clock.monotonic();
        if self.measure_at().is_none_or(|at| monotonic < at) {
            return;
        }
        let Some((limits, at)) = &mut self.storage else { return };
        *at = None;
        let (limits, host, events) = (limits.clone(), self.host.clone(), self.events.0.clone());
        let uid = self.machine.pod.metadata.uid.clone().unwrap_or_default();
        self.tasks.spawn(async move {
            let Ok(_turn) = host.measurements.acquire().await else { return };
            let (directory, memory) = (host.pod_directory(&uid), host.memory_directory(&uid));
            let measured = spawn_blocking(move || limits.measure(&directory, memory.as_deref())).await;
            // If the pod is gone, there is no receiver any more.
            let _gone = events.send(ContainerEvent::Measured(measured.unwrap_or_default()));
        });
    }

    /// Returns the monotonic time of the next measurement of the local storage. A pod that is stopped isn't measured
    /// any more.
    fn measure_at(&self) -> Option<Duration> {
        let (_, at) = self.storage.as_ref()?;
        at.filter(|_| self.machine.stop.is_none() && !self.machine.is_over())
    }

    /// Writes the status if it differs from the object's. Returns false if the object has changed meanwhile: the feed
    /// delivers its next version, from which the status is computed again.
    async fn report(&mut self) -> bool {
        let monotonic = self.host.clock.monotonic();
        // The last status of the object doesn't wait, since nobody can see it later.
        let is_last = self.remove_at.is_some();
        if monotonic < self.write_at && !is_last {
            return true;
        }
        let status = self.machine.status(now(&self.host).wall);
        if !self.differs(&status) {
            return true;
        }
        if let Some((written, at)) = &self.written
            && *written == status
            && monotonic < *at + RETRY
        {
            // The status was just written and differs again. The delay prevents two writers from overwriting each other
            // at full speed.
            self.write_at = *at + RETRY;
            return true;
        }
        let host = self.host.clone();
        let Ok(_turn) = host.writes.acquire().await else { return true };
        let metadata = &self.machine.pod.metadata;
        let [uid, version] =
            [&metadata.uid, &metadata.resource_version].map(|text| text.as_deref().unwrap_or_default());
        let patch = patch(uid, version, &status);
        self.written = Some((status, monotonic));
        match self.host.client.merge(&self.object(), "/status", &patch).await {
            Ok(answer) => match serde_json::from_value(answer) {
                Ok(pod) => self.observe(Arc::new(pod)),
                Err(error) => tracing::warn!(%error, "failed to decode the answer to a status update"),
            },
            Err(error) if is_conflict(&error) => {
                self.written = None;
                return false;
            }
            Err(error) if is_gone(&error) => self.write_at = monotonic + RETRY,
            Err(error) => {
                tracing::warn!(%error, pod = %self.object(), "failed to write the status of a pod");
                self.written = None;
                self.write_at = monotonic + RETRY;
            }
        }
        true
    }

    /// Returns whether the object's status differs in the node's own fields.
    fn differs(&self, status: &PodStatus) -> bool {
        let present = self.machine.pod.status.clone().unwrap_or_default();
        let mut wanted = present.clone();
        let PodStatus { phase, reason, message, start_time, observed_generation, .. } = status.clone();
        (wanted.phase, wanted.reason, wanted.message) = (phase, reason, message);
        (wanted.start_time, wanted.observed_generation) = (start_time, observed_generation);
        let PodStatus { host_ip, host_ips, pod_ip, pod_ips, .. } = status.clone();
        (wanted.host_ip, wanted.host_ips, wanted.pod_ip, wanted.pod_ips) = (host_ip, host_ips, pod_ip, pod_ips);
        let PodStatus { conditions, container_statuses, init_container_statuses, .. } = status.clone();
        (wanted.conditions, wanted.container_statuses) = (conditions, container_statuses);
        wanted.init_container_statuses = init_container_statuses;
        wanted.ephemeral_container_statuses = status.ephemeral_container_statuses.clone();
        wanted != present
    }

    /// Removes the object of a pod whose processes have all ended.
    async fn remove(&mut self) {
        let monotonic = self.host.clock.monotonic();
        if self.remove_at.is_none_or(|at| monotonic < at) {
            return;
        }
        let host = self.host.clone();
        let Ok(_turn) = host.writes.acquire().await else { return };
        let uid = self.machine.pod.metadata.uid.clone();
        let how = DeleteOptions { uid: uid.as_deref(), grace: Some(0), ..DeleteOptions::default() };
        self.remove_at = match self.host.client.delete(&self.object(), &how).await {
            Ok(()) => None,
            Err(error) if is_gone(&error) || is_conflict(&error) => None,
            Err(error) => {
                tracing::warn!(%error, pod = %self.object(), "failed to remove a pod");
                Some(monotonic + RETRY)
            }
        };
    }

    /// Returns the monotonic time of the next action, if no message comes before.
    fn wake(&self) -> Option<Duration> {
        let monotonic = self.host.clock.monotonic();
        let write = Some(self.write_at).filter(|at| *at > monotonic);
        self.machine.wake().into_iter().chain(self.remove_at).chain(write).chain(self.measure_at()).min()
    }

    fn object(&self) -> ObjectPath {
        let metadata = &self.machine.pod.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        ObjectPath::core("pods", metadata.namespace.as_deref(), name)
    }

    /// Cleans up after the object is gone.
    async fn clean_up(&mut self) {
        for (process, _) in self.processes.values() {
            process.kill();
        }
        self.tasks.shutdown().await;
        let metadata = &self.machine.pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let uid = text(&metadata.uid);
        self.host.tokens.forget(&uid);
        self.host.probes.forget(&uid);
        self.host.hosts.remove(&uid);
        self.host.logs.forget(&(text(&metadata.namespace), text(&metadata.name)), &uid);
        self.release_devices(&uid).await;
        for directory in [Some(self.host.pod_directory(&uid)), self.host.memory_directory(&uid)].into_iter().flatten() {
            // The removal continues even if the node ends in the meantime.
            let path = directory.clone();
            if let Ok(Err(error)) = spawn_blocking(move || mounts::remove_tree(&path)).await
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(%error, path = %directory.display(), "failed to remove the directory of a pod");
            }
        }
    }

    /// Unmounts the block devices that no other pod uses.
    async fn release_devices(&self, uid: &str) {
        if self.host.devices.is_none() {
            return;
        }
        let (host, uid) = (self.host.clone(), uid.to_owned());
        let released = spawn_blocking(move || host.devices.as_ref().map_or(Ok(()), |devices| devices.release(&uid)));
        if let Ok(Err(error)) = released.await {
            tracing::warn!(%error, "failed to unmount the block devices of a pod");
        }
    }
}

fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

fn now(host: &NodeContext) -> Moment {
    Moment { wall: whole_seconds(host.clock.now()), monotonic: host.clock.monotonic() }
}
