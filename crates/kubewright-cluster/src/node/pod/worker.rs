//! Keeps one pod: carries out what its [`Machine`] says, and reports its status.

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::{
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
    time::sleep,
};

use super::{
    check::Target,
    container::{Moment, State},
    machine::{Effect, Event, Machine},
    probe::Aim,
    run::{Fact, hook_failed, play},
    status::patch,
};
use crate::{
    access::{Address, Deletion, is_conflict, is_gone},
    events::{Occurrence, whole_seconds},
    node::{Host, address::Lease, process::Process},
};

/// How long a write that failed, or that did not last, waits before it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// The pod's object has changed.
    Changed(Arc<Pod>),
    /// A ConfigMap or Secret of the pod's namespace has changed.
    Configuration,
    /// The pod's object is gone.
    Gone,
}

/// One pod.
pub(crate) struct Worker {
    host: Arc<Host>,
    machine: Machine,
    /// The version of the pod's object that the machine has.
    version: u64,
    processes: BTreeMap<usize, (Arc<Process>, Arc<Target>)>,
    /// One for each container that starts or runs, each probe that is tried, and each hook that is called.
    plays: JoinSet<()>,
    facts: (mpsc::UnboundedSender<Fact>, mpsc::UnboundedReceiver<Fact>),
    /// The last status written, and when.
    written: Option<(PodStatus, Duration)>,
    /// The object is to be removed, at this time or later.
    remove_at: Option<Duration>,
    /// No status is written before.
    write_at: Duration,
    _address: Lease,
}

impl Worker {
    /// Takes a pod in.
    pub(crate) fn new(host: Arc<Host>, pod: Arc<Pod>) -> Self {
        let lease = host.addresses.take();
        let version = version(&pod);
        let machine = Machine::new(pod, lease.address(), now(&host));
        Self {
            host,
            machine,
            version,
            processes: BTreeMap::new(),
            plays: JoinSet::new(),
            facts: mpsc::unbounded_channel(),
            written: None,
            remove_at: None,
            write_at: Duration::ZERO,
            _address: lease,
        }
    }

    /// Keeps the pod until its object is gone. Dropping the future kills all that runs.
    pub(crate) async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        loop {
            self.act();
            self.report().await;
            self.remove().await;
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
                message = messages.recv() => if self.told(message) || self.told_more(&mut messages) { break },
                Some(fact) = self.facts.1.recv() => self.learn(fact),
                () = timer => {}
            }
            while let Ok(fact) = self.facts.1.try_recv() {
                self.learn(fact);
            }
        }
        self.clean_up().await;
    }

    /// Takes a message in; true if the pod is gone.
    fn told(&mut self, message: Option<Message>) -> bool {
        match message {
            Some(Message::Changed(pod)) => self.observe(pod),
            Some(Message::Configuration) => self.machine.configuration_changed(now(&self.host)),
            Some(Message::Gone) | None => return true,
        }
        false
    }

    fn told_more(&mut self, messages: &mut mpsc::UnboundedReceiver<Message>) -> bool {
        while let Ok(message) = messages.try_recv() {
            if self.told(Some(message)) {
                return true;
            }
        }
        false
    }

    /// Takes in a version of the object, from the feed or as the answer to a write, unless a later one is known.
    fn observe(&mut self, pod: Arc<Pod>) {
        let version = version(&pod);
        if version > self.version {
            self.version = version;
            self.machine.observe(pod, now(&self.host));
        }
    }

    fn learn(&mut self, fact: Fact) {
        let now = now(&self.host);
        match fact {
            Fact::Started(index, id, process, target) => {
                self.processes.insert(index, (process, target));
                self.machine.started(index, id, now);
            }
            Fact::Refused(index, why) => self.machine.refused(index, why, now),
            Fact::Ended(index, code) => {
                self.processes.remove(&index);
                self.machine.ended(index, code, now);
            }
            Fact::Probed(index, id, aim, outcome) => self.machine.probed(index, &id, aim, outcome, now),
            Fact::Told(event) => self.tell(event),
        }
        while self.plays.try_join_next().is_some() {}
    }

    /// Carries out what is to be done now.
    fn act(&mut self) {
        for effect in self.machine.step(now(&self.host)) {
            match effect {
                Effect::Start(index) => {
                    if let Some(container) = self.machine.spec(index) {
                        let (pod, address) = (self.machine.pod.clone(), self.machine.address.clone());
                        let run = self.machine.containers[index].restarts;
                        let facts = self.facts.0.clone();
                        let host = self.host.clone();
                        self.plays.spawn(play(host, pod, address, container.clone(), index, run, facts));
                    }
                }
                Effect::Terminate(index) => self.terminate(index),
                Effect::Kill(index) => {
                    if let Some((process, _)) = self.processes.get(&index) {
                        process.kill();
                    }
                }
                Effect::Probe(index, aim) => self.probe(index, aim),
                Effect::Event(event) => self.tell(event),
                Effect::Remove => self.remove_at = Some(Duration::ZERO),
            }
        }
    }

    fn tell(&self, event: Event) {
        let pod = &self.machine.pod;
        self.host.events.record(Occurrence::of_pod(pod, event.warning, event.reason, event.message));
    }

    /// Asks a container to end, after its hook has been called if it has one. Its grace runs meanwhile.
    fn terminate(&mut self, index: usize) {
        let Some((process, target)) = self.processes.get(&index) else { return };
        let Some(hook) = target.container.lifecycle.as_ref().and_then(|hooks| hooks.pre_stop.clone()) else {
            return process.terminate();
        };
        let (process, target, facts) = (process.clone(), target.clone(), self.facts.0.clone());
        self.plays.spawn(async move {
            if let Err(why) = target.hook(&hook).await {
                // Nobody listens any more when the pod is gone, and then nobody needs to know.
                let _gone = facts.send(Fact::Told(hook_failed("PreStop", &why)));
            }
            process.terminate();
        });
    }

    /// Tries a probe.
    fn probe(&mut self, index: usize, aim: Aim) {
        let running = |state: &State| match state {
            State::Running(running) => Some(running.id.clone()),
            _ => None,
        };
        let Some(id) = running(&self.machine.containers[index].state) else { return };
        let Some((_, target)) = self.processes.get(&index) else { return };
        let Some(probe) = aim.of(&target.container).cloned() else { return };
        let (target, facts) = (target.clone(), self.facts.0.clone());
        self.plays.spawn(async move {
            let outcome = target.probe(&probe).await;
            let _gone = facts.send(Fact::Probed(index, id, aim, outcome));
        });
    }

    /// Writes the status if the object has another one.
    async fn report(&mut self) {
        let monotonic = self.host.clock.monotonic();
        if monotonic < self.write_at {
            return;
        }
        let status = self.machine.status(now(&self.host).wall);
        if !self.differs(&status) {
            return;
        }
        if let Some((written, at)) = &self.written
            && *written == status
            && monotonic < *at + RETRY
        {
            // It was just written and is different again: whoever does that, two don't fight at full speed.
            self.write_at = *at + RETRY;
            return;
        }
        let host = self.host.clone();
        let Ok(_turn) = host.writes.acquire().await else { return };
        let patch = patch(self.machine.pod.metadata.uid.as_deref().unwrap_or_default(), &status);
        self.written = Some((status, monotonic));
        match self.host.access.merge(&self.object(), "/status", &patch).await {
            Ok(answer) => match serde_json::from_value(answer) {
                Ok(pod) => self.observe(Arc::new(pod)),
                Err(error) => tracing::warn!(%error, "the answer to a status update is no pod"),
            },
            // It is gone, or another one has its name: the feed is about to say so.
            Err(error) if is_gone(&error) || is_conflict(&error) => self.write_at = monotonic + RETRY,
            Err(error) => {
                tracing::warn!(%error, pod = %self.object(), "a pod's status can't be written");
                self.written = None;
                self.write_at = monotonic + RETRY;
            }
        }
    }

    /// Whether the object's status differs in what the node has to say.
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
        wanted != present
    }

    /// Removes the object of a pod of which nothing runs any more.
    async fn remove(&mut self) {
        let monotonic = self.host.clock.monotonic();
        if self.remove_at.is_none_or(|at| monotonic < at) {
            return;
        }
        let host = self.host.clone();
        let Ok(_turn) = host.writes.acquire().await else { return };
        let uid = self.machine.pod.metadata.uid.clone();
        let how = Deletion { uid: uid.as_deref(), grace: Some(0), ..Deletion::default() };
        self.remove_at = match self.host.access.delete(&self.object(), &how).await {
            Ok(()) => None,
            Err(error) if is_gone(&error) || is_conflict(&error) => None,
            Err(error) => {
                tracing::warn!(%error, pod = %self.object(), "a pod can't be removed");
                Some(monotonic + RETRY)
            }
        };
    }

    /// When time alone gives something to do.
    fn wake(&self) -> Option<Duration> {
        let monotonic = self.host.clock.monotonic();
        let write = Some(self.write_at).filter(|at| *at > monotonic);
        self.machine.wake().into_iter().chain(self.remove_at).chain(write).min()
    }

    fn object(&self) -> Address {
        let metadata = &self.machine.pod.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        Address::core("pods", metadata.namespace.as_deref(), name)
    }

    /// The object is gone: nothing may be left of the pod.
    async fn clean_up(&mut self) {
        for (process, _) in self.processes.values() {
            process.kill();
        }
        self.plays.shutdown().await;
        let metadata = &self.machine.pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let uid = text(&metadata.uid);
        self.host.logs.forget(&(text(&metadata.namespace), text(&metadata.name)), &uid);
        let directory = self.host.pod_directory(&uid);
        // The removal goes on by itself if the node ends meanwhile.
        let path = directory.clone();
        if let Ok(Err(error)) = spawn_blocking(move || std::fs::remove_dir_all(path)).await
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %directory.display(), "a pod's directory can't be removed");
        }
    }
}

fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

fn now(host: &Host) -> Moment {
    Moment { wall: whole_seconds(host.clock.now()), monotonic: host.clock.monotonic() }
}
