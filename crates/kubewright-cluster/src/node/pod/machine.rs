//! The lifecycle of a pod as a state machine without I/O or a clock: events are its input, effects its output.

use std::{borrow::Cow, net::Ipv4Addr, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::{
    container::{Moment, Record, Role, RunEnd, Running, State, Terminated, Waiting},
    probe::{Decision, ProbeResult, ProbeType, Probes},
    spec,
};
use crate::node::{address::HOST_ADDRESS, backoff::written, identity::Identity};

/// The time for which the error of a failed pull is shown before the back-off is.
const PULL_ERROR_SHOWN: Duration = Duration::from_secs(2);
/// The default grace period in seconds.
const DEFAULT_GRACE: i64 = 30;
/// The grace period of a pod that uses more local storage than its limits allow.
const EVICTION_GRACE: Duration = Duration::from_secs(1);
/// The message of a pod that was active for longer than `activeDeadlineSeconds`.
const DEADLINE_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// An action for the caller. Containers are identified by their index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Start the process, then call [`Machine::started`] or [`Machine::refused`], and later [`Machine::ended`].
    Start(usize),
    /// Run the `preStop` hook of a container that will be asked to end later.
    PreStop(usize),
    /// Run the `preStop` hook, unless that was done, and send SIGTERM to the process after it.
    Terminate(usize),
    /// Kill the process.
    Kill(usize),
    /// Run a probe, then call [`Machine::probed`].
    Probe(usize, ProbeType),
    /// Record an event about the pod.
    Event(Event),
    /// Remove the pod's object, since none of its processes is running any more.
    Remove,
}

/// An event about the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The name of the container that it is about, or `None` if it is about the pod as a whole.
    pub(crate) container: Option<String>,
    /// Whether the type is `Warning` instead of `Normal`.
    pub(crate) warning: bool,
    /// The reason, such as `Started`.
    pub(crate) reason: &'static str,
    /// The human-readable message.
    pub(crate) message: String,
}

/// An error that prevents a container from being started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartFailure {
    /// The image reference is invalid.
    InvalidImage(String),
    /// The image doesn't exist.
    NoImage(String),
    /// An object that its configuration refers to doesn't exist.
    Config(String),
    /// It can't be created as it is configured.
    Create(String),
    /// A volume isn't available.
    Volume(String),
    /// The network of the pod can't be made.
    Sandbox(String),
    /// The program can't be executed.
    Start(String),
}

/// The reason why all containers are being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The pod is being deleted.
    Deleted,
    /// The pod has failed as a whole.
    Failed,
}

/// Why a pod has failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodFailure {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The pod as last observed.
    pub(crate) pod: Arc<Pod>,
    /// The containers: init containers, main containers, and ephemeral containers in the order in which they were
    /// added.
    pub(crate) containers: Vec<Record>,
    /// The pod's address.
    pub(crate) address: String,
    /// The address of the node.
    pub(crate) host_address: Ipv4Addr,
    /// The time at which the node accepted the pod, for the first time if the node was restarted since.
    pub(crate) started: Timestamp,
    /// The reason to stop, and the monotonic time at which remaining processes are killed.
    pub(crate) stop: Option<(StopReason, Duration)>,
    /// Why the pod has failed as a whole, from when its containers are stopped for it.
    pub(crate) failure: Option<PodFailure>,
    admitted: Duration,
    /// The time that had passed since the start when the pod was admitted by this node's process.
    age: Duration,
    /// The container whose exit restarts all containers of the pod; set until the others have ended.
    pub(crate) restarting_all: Option<usize>,
    removed: bool,
    /// Whether probes are executed.
    probing: bool,
    pub(super) effects: Vec<Effect>,
}

impl Machine {
    /// Creates the state machine of a pod that the node accepts.
    pub(crate) fn new(pod: Arc<Pod>, address: String, now: Moment) -> Self {
        let containers = spec::containers(&pod).map(|(container, role)| Record::new(&container, role)).collect();
        let known = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        let started = known.unwrap_or(now.wall);
        let mut machine = Self {
            pod: pod.clone(),
            containers,
            address,
            host_address: HOST_ADDRESS,
            started,
            stop: None,
            failure: None,
            admitted: now.monotonic,
            age: Duration::try_from(now.wall.duration_since(started)).unwrap_or_default(),
            restarting_all: None,
            removed: false,
            probing: true,
            effects: Vec::new(),
        };
        machine.observe(pod, now);
        machine
    }

    /// Sets the address of the node.
    pub(crate) fn at_host(mut self, address: Ipv4Addr) -> Self {
        self.host_address = address;
        self
    }

    /// Disables probes: all of them count as passed.
    pub(crate) fn without_probes(mut self) -> Self {
        self.probing = false;
        self
    }

    /// Processes a change of the pod's object.
    pub(crate) fn observe(&mut self, pod: Arc<Pod>, now: Moment) {
        let old = std::mem::replace(&mut self.pod, pod);
        let (old, new) = (&old.metadata, &self.pod.metadata);
        if old.labels != new.labels || old.annotations != new.annotations {
            self.configuration_changed(now);
        }
        if self.pod.metadata.deletion_timestamp.is_some() {
            let grace = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(DEFAULT_GRACE);
            self.stop(StopReason::Deleted, seconds(grace), now);
        }
        for index in 0..self.containers.len() {
            self.observe_image(index, now);
        }
        self.observe_resources(now);
        self.add_ephemeral_containers();
    }

    /// Adds the records of new ephemeral containers.
    fn add_ephemeral_containers(&mut self) {
        let pod = self.pod.clone();
        for (container, role) in spec::containers(&pod).filter(|(_, role)| *role == Role::Ephemeral) {
            if self.containers.iter().all(|record| record.name != container.name) {
                self.containers.push(Record::new(&container, role));
            }
        }
    }

    /// Restarts a container whose image has changed.
    fn observe_image(&mut self, index: usize, now: Moment) {
        let image = self.spec(index).and_then(|container| container.image.clone()).unwrap_or_default();
        let record = &self.containers[index];
        if image == record.image || self.stop.is_some() {
            return;
        }
        let message = format!("Container {} definition changed, will be restarted", record.name);
        self.replace(index, message, now);
    }

    /// Restarts a running container, or lets a waiting one start now.
    pub(super) fn replace(&mut self, index: usize, message: String, now: Moment) {
        let kill_at = now.monotonic + self.grace();
        match &mut self.containers[index].state {
            State::Running(running) if running.kill_at.is_none() => {
                running.kill_at = Some(kill_at);
                running.replaced = true;
                self.container_event(index, false, "Killing", message);
                self.effects.push(Effect::Terminate(index));
            }
            State::Waiting(waiting) => waiting.until = now.monotonic,
            _ => {}
        }
    }

    /// Retries containers that wait for a ConfigMap, Secret or volume, or a label or annotation of the pod.
    pub(crate) fn configuration_changed(&mut self, now: Moment) {
        for record in &mut self.containers {
            if let State::Waiting(waiting) = &mut record.state
                && matches!(waiting.reason, "CreateContainerConfigError" | "ContainerCreating")
            {
                waiting.until = now.monotonic;
            }
        }
    }

    /// Records that a process has started, with the user and groups it has, if there is a process of the host.
    pub(crate) fn started(&mut self, index: usize, id: String, identity: Option<Identity>, now: Moment) {
        let record = &mut self.containers[index];
        record.identity = identity;
        if record.last.is_some() {
            record.restarts += 1;
        }
        record.state = State::Running(Running {
            id,
            since: now.wall,
            kill_at: None,
            announced: false,
            killed: false,
            replaced: false,
        });
        let present =
            format!("Container image {:?} already present on machine and can be accessed by the pod", record.image);
        self.container_event(index, false, "Pulled", present);
        self.container_event(index, false, "Created", "Container created".into());
        self.container_event(index, false, "Started", "Container started".into());
        self.begin_probes(index, now);
    }

    fn begin_probes(&mut self, index: usize, now: Moment) {
        let Some(container) = self.spec(index).filter(|_| self.probing).map(Cow::into_owned) else {
            self.containers[index].has_begun = true;
            return;
        };
        let container = &container;
        let probes = Probes::new(container, self.admitted, now.monotonic);
        let record = &mut self.containers[index];
        record.has_begun |= probes.has_started();
        record.probes = probes;
    }

    /// Processes the result of a probe, for the run with this ID.
    pub(crate) fn probed(&mut self, index: usize, id: &str, probe_type: ProbeType, outcome: ProbeResult, now: Moment) {
        let grace = self.grace();
        let again = self.policy_restarts(index, 1);
        let record = &mut self.containers[index];
        let State::Running(running) = &mut record.state else { return };
        if running.id != id {
            return;
        }
        let decision = record.probes.take(probe_type, &outcome, now.monotonic);
        record.has_begun |= record.probes.has_started();
        let stops = decision != Decision::Nothing && self.stop.is_none() && running.kill_at.is_none();
        let name = record.name.clone();
        if let (Decision::Stop(own), true) = (decision, stops) {
            running.kill_at = Some(now.monotonic + own.unwrap_or(grace));
        }
        match outcome {
            ProbeResult::Success => {}
            ProbeResult::Warning(why) => {
                self.container_event(index, true, "ProbeWarning", format!("{probe_type:?} probe warning: {why}"));
            }
            ProbeResult::Failure(why) => {
                self.container_event(index, true, "Unhealthy", format!("{probe_type:?} probe failed: {why}"))
            }
            ProbeResult::Unknown(why) => {
                self.container_event(
                    index,
                    true,
                    "Unhealthy",
                    format!("{probe_type:?} probe errored and resulted in unknown state: {why}"),
                );
            }
        }
        if stops {
            let probe_type = format!("{probe_type:?}").to_lowercase();
            let then = if again { ", will be restarted" } else { "" };
            self.container_event(index, false, "Killing", format!("Container {name} failed {probe_type} probe{then}"));
            self.effects.push(Effect::Terminate(index));
        }
    }

    /// Records that a process could not be started.
    pub(crate) fn refused(&mut self, index: usize, why: StartFailure, now: Moment) {
        let Record { name, image, .. } = self.containers[index].clone();
        let (reason, message, then) = match why {
            StartFailure::Start(message) => {
                let message = format!("failed to start container {name:?}: {message}");
                self.container_event(index, true, "Failed", format!("Error: {message}"));
                let record = &mut self.containers[index];
                if record.last.is_some() {
                    record.restarts += 1;
                }
                let ended = Terminated {
                    id: String::new(),
                    code: 128,
                    reason: "StartError",
                    message: Some(message),
                    started: Timestamp::UNIX_EPOCH,
                    finished: now.wall,
                };
                return self.over(index, ended, false, now);
            }
            StartFailure::Config(message) => {
                self.container_event(index, true, "Failed", format!("Error: {message}"));
                ("CreateContainerConfigError", message, None)
            }
            StartFailure::Create(message) => {
                self.container_event(index, true, "Failed", format!("Error: {message}"));
                ("CreateContainerError", message, None)
            }
            StartFailure::Volume(message) => {
                self.event(true, "FailedMount", message.clone());
                ("ContainerCreating", message, None)
            }
            StartFailure::Sandbox(message) => {
                self.event(true, "FailedCreatePodSandBox", format!("Failed to create pod sandbox: {message}"));
                ("ContainerCreating", message, None)
            }
            StartFailure::InvalidImage(message) => {
                self.container_event(
                    index,
                    true,
                    "InspectFailed",
                    format!("Failed to apply default image tag {image:?}: {message}"),
                );
                self.container_event(index, true, "Failed", "Error: InvalidImageName".into());
                let message = format!("Failed to apply default image tag {image:?}: {message}");
                ("InvalidImageName", message, None)
            }
            StartFailure::NoImage(message) => {
                self.container_event(index, true, "Failed", format!("Failed to pull image {image:?}: {message}"));
                self.container_event(index, true, "Failed", "Error: ErrImagePull".into());
                let later = format!("Back-off pulling image {image:?}: ErrImagePull: {message}");
                let at = now.monotonic + PULL_ERROR_SHOWN;
                ("ErrImagePull", message, Some((at, "ImagePullBackOff", later)))
            }
        };
        let record = &mut self.containers[index];
        let until = now.monotonic + record.refused.refused(now.monotonic);
        record.state = State::Waiting(Waiting { until, reason, message, then });
    }

    /// Records that a process has ended, with the message that it has left.
    pub(crate) fn ended(&mut self, index: usize, end: RunEnd, now: Moment) {
        let State::Running(running) = &self.containers[index].state else { return };
        let replaced = running.replaced;
        let ended = Terminated {
            id: running.id.clone(),
            code: end.code,
            reason: end.reason(),
            message: end.message,
            started: running.since,
            finished: now.wall,
        };
        self.over(index, ended, replaced, now);
    }

    /// Ends one run of a container, and schedules the next run if there is one.
    fn over(&mut self, index: usize, ended: Terminated, replaced: bool, now: Moment) {
        if self.stop.is_none() && self.restarts_all(index, ended.code) {
            self.restarting_all.get_or_insert(index);
        }
        let restarts = replaced || self.restarts(index, ended.code);
        let record = &mut self.containers[index];
        if self.stop.is_some() || self.restarting_all.is_some() || !restarts {
            record.state = State::Terminated(ended);
            return;
        }
        record.last = Some(ended);
        let delay = if replaced { Duration::ZERO } else { record.crash.crashed(now.monotonic) };
        let who = describe(&self.pod, &record.name);
        let message = format!("back-off {} restarting failed container={who}", written(delay));
        record.state =
            State::Waiting(Waiting { until: now.monotonic + delay, reason: "CrashLoopBackOff", message, then: None });
        if !delay.is_zero() {
            let name = record.name.clone();
            let pod = describe(&self.pod, "").trim_start_matches(" pod=").to_owned();
            self.container_event(
                index,
                true,
                "BackOff",
                format!("Back-off restarting failed container {name} in pod {pod}"),
            );
        }
    }

    /// Returns the actions that are due now.
    pub(crate) fn step(&mut self, now: Moment) -> Vec<Effect> {
        if let Some(limit) = self.active_deadline()
            && self.stop.is_none()
            && !self.is_over()
            && now.monotonic >= limit
        {
            let failure = PodFailure { reason: "DeadlineExceeded", message: DEADLINE_MESSAGE.into() };
            self.fail(failure, self.grace(), now);
        }
        if self.stop.is_some() || self.main_is_over() {
            self.wind_down(now);
        } else if self.reset_all(now) {
            self.start_next(now);
        }
        for index in 0..self.containers.len() {
            self.pass_time(index, now);
        }
        std::mem::take(&mut self.effects)
    }

    /// Starts the containers whose turn it is.
    fn start_next(&mut self, now: Moment) {
        for index in 0..self.containers.len() {
            let waits = match self.containers[index].role {
                Role::Ephemeral => self.lacks_target(index),
                _ => !self.containers[..index].iter().all(Record::lets_pass),
            };
            if waits {
                continue;
            }
            let due = match &self.containers[index].state {
                State::Pending => true,
                State::Waiting(waiting) => now.monotonic >= waiting.until,
                _ => false,
            };
            if due {
                let image = self.spec(index).and_then(|container| container.image.clone()).unwrap_or_default();
                let record = &mut self.containers[index];
                record.image = image;
                record.state = State::Starting;
                self.adopt_resources(index);
                self.effects.push(Effect::Start(index));
            }
        }
    }

    /// Returns whether an ephemeral container is meant for another container that has never run.
    fn lacks_target(&self, index: usize) -> bool {
        let Some(target) = spec::target(&self.pod, &self.containers[index].name) else { return false };
        !self.containers.iter().any(|record| record.name == target && record.has_run())
    }

    /// Stops the running containers: sidecars after all others, in the reverse order of their start, but their hooks
    /// begin at once, as in the kubelet.
    fn wind_down(&mut self, now: Moment) {
        let kill_at = self.stop.map_or(now.monotonic + self.grace(), |(_, kill_at)| kill_at);
        for index in 0..self.containers.len() {
            let is_first = self.ends_before(index).all(|record| !record.is_alive());
            let record = &mut self.containers[index];
            let State::Running(running) = &mut record.state else { continue };
            let earliest = running.kill_at.map_or(kill_at, |present| present.min(kill_at));
            let asked = running.kill_at.is_some();
            let turn = is_first || now.monotonic >= kill_at;
            let announced = std::mem::replace(&mut running.announced, true);
            if asked || turn {
                running.kill_at = Some(earliest);
            }
            if !asked && !announced {
                let message = format!("Stopping container {}", record.name);
                let container = Some(record.name.clone());
                self.effects.push(Effect::Event(Event { container, warning: false, reason: "Killing", message }));
            }
            if !asked && turn {
                self.effects.push(Effect::Terminate(index));
            } else if !asked && !announced {
                self.effects.push(Effect::PreStop(index));
            }
        }
        let deleted = matches!(self.stop, Some((StopReason::Deleted, _)));
        if deleted && !self.removed && !self.containers.iter().any(Record::is_alive) {
            self.removed = true;
            self.effects.push(Effect::Remove);
        }
    }

    /// Returns the containers that end before a container of a pod that ends: those which a sidecar may serve.
    fn ends_before(&self, index: usize) -> impl Iterator<Item = &Record> {
        let is_sidecar = self.containers[index].role == Role::Sidecar;
        self.containers.iter().enumerate().filter_map(move |(other, record)| match record.role {
            Role::Init | Role::Main => is_sidecar.then_some(record),
            Role::Sidecar => (is_sidecar && other > index).then_some(record),
            Role::Ephemeral => None,
        })
    }

    fn pass_time(&mut self, index: usize, now: Moment) {
        match &mut self.containers[index].state {
            State::Running(running) => {
                if !running.killed && running.kill_at.is_some_and(|at| now.monotonic >= at) {
                    running.killed = true;
                    self.effects.push(Effect::Kill(index));
                }
                let stopping = self.stop.is_some() || running.kill_at.is_some();
                let due = self.containers[index].probes.due(now.monotonic, stopping);
                self.effects.extend(due.into_iter().map(|probe_type| Effect::Probe(index, probe_type)));
            }
            State::Waiting(waiting) => {
                if let Some((_, reason, message)) = waiting.then.take_if(|(at, ..)| now.monotonic >= *at) {
                    (waiting.reason, waiting.message) = (reason, message);
                    let image = self.containers[index].image.clone();
                    self.container_event(index, false, "BackOff", format!("Back-off pulling image {image:?}"));
                    self.container_event(index, true, "Failed", format!("Error: {reason}"));
                }
            }
            _ => {}
        }
    }

    /// Returns the monotonic time of the next step, if no event comes before.
    pub(crate) fn wake(&self) -> Option<Duration> {
        let deadline = self.active_deadline().filter(|_| self.stop.is_none() && !self.is_over());
        let stopping = self.stop.is_some() || self.main_is_over();
        let due = |record: &Record| record.wake().filter(|_| !stopping || record.is_running());
        let probe = |record: &Record| {
            let stopping = self.stop.is_some() || record.is_stopping();
            record.probes.wake(stopping).filter(|_| record.is_running())
        };
        let probes = self.containers.iter().filter_map(probe);
        self.containers.iter().filter_map(due).chain(deadline).chain(probes).min()
    }

    /// Returns whether every container has ended or will never run.
    pub(crate) fn is_over(&self) -> bool {
        (self.stop.is_some() || self.main_is_over()) && !self.containers.iter().any(Record::is_alive)
    }

    /// Returns whether the main containers have ended, or an init container has failed for good.
    pub(crate) fn main_is_over(&self) -> bool {
        let failed = |record: &Record| record.role == Role::Init && record.ended().is_some_and(|ended| ended.code != 0);
        if self.restarting_all.is_some() {
            return false;
        }
        self.containers.iter().any(failed)
            || self.containers.iter().all(|record| record.role != Role::Main || record.ended().is_some())
    }

    /// Returns the spec of a container.
    pub(crate) fn spec(&self, index: usize) -> Option<Cow<'_, Container>> {
        spec::find(&self.pod, &self.containers[index].name)
    }

    /// Evicts the pod, unless it is being stopped or has ended.
    pub(crate) fn evict(&mut self, message: String, now: Moment) {
        if self.stop.is_none() && !self.is_over() {
            self.fail(PodFailure { reason: "Evicted", message }, EVICTION_GRACE, now);
        }
    }

    fn fail(&mut self, failure: PodFailure, grace: Duration, now: Moment) {
        self.event(true, failure.reason, failure.message.clone());
        self.failure = Some(failure);
        self.stop(StopReason::Failed, grace, now);
    }

    fn stop(&mut self, why: StopReason, grace: Duration, now: Moment) {
        let kill_at = now.monotonic + grace;
        self.stop = match self.stop {
            Some((_, present)) => Some((why, present.min(kill_at))),
            None => Some((why, kill_at)),
        };
    }

    fn active_deadline(&self) -> Option<Duration> {
        let limit = self.pod.spec.as_ref()?.active_deadline_seconds?;
        Some(self.admitted + seconds(limit).saturating_sub(self.age))
    }

    fn grace(&self) -> Duration {
        let grace = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        seconds(grace.unwrap_or(DEFAULT_GRACE))
    }

    pub(super) fn event(&mut self, warning: bool, reason: &'static str, message: String) {
        self.effects.push(Effect::Event(Event { container: None, warning, reason, message }));
    }

    /// Records an event about a container.
    pub(super) fn container_event(&mut self, index: usize, warning: bool, reason: &'static str, message: String) {
        let container = Some(self.containers[index].name.clone());
        self.effects.push(Effect::Event(Event { container, warning, reason, message }));
    }
}

/// Describes a container as the kubelet's messages do: `main pod=web_default(uid)`.
fn describe(pod: &Pod, container: &str) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let metadata = &pod.metadata;
    format!("{container} pod={}_{}({})", text(&metadata.name), text(&metadata.namespace), text(&metadata.uid))
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}
