//! The state and history of one container of a pod.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};

use super::probe::Probes;
use crate::node::{backoff::Backoff, identity::Identity};

/// A point in time on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The wall-clock time, for statuses.
    pub(crate) wall: Timestamp,
    /// The monotonic time, for waiting.
    pub(crate) monotonic: Duration,
}

/// The role of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to its end before the main containers start.
    Init,
    /// Runs from its turn among the init containers until the main containers have ended.
    Sidecar,
    /// Runs after the init containers.
    Main,
    /// Is added to a running pod, runs once, and has no part in the pod's phase and readiness.
    Ephemeral,
}

/// The current state of a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    /// Its turn has not come yet.
    Pending,
    /// Its process is being started.
    Starting,
    /// Its process runs.
    Running(Running),
    /// It waits for a later start.
    Waiting(Waiting),
    /// It has ended and will not be restarted.
    Terminated(Terminated),
}

/// A running container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Running {
    /// The ID, as in `containerID`.
    pub(crate) id: String,
    /// The time at which it started.
    pub(crate) since: Timestamp,
    /// The monotonic time at which it will be killed, once it was asked to end.
    pub(crate) kill_at: Option<Duration>,
    /// Whether its end was announced: its `preStop` hook runs, and it is asked to end once its turn has come.
    pub(crate) announced: bool,
    /// Whether it has been killed.
    pub(crate) killed: bool,
    /// Whether it was stopped to be restarted with another image.
    pub(crate) replaced: bool,
}

/// A container that waits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waiting {
    /// The monotonic time of the next start.
    pub(crate) until: Duration,
    /// The reason, such as `CrashLoopBackOff` or `ErrImagePull`.
    pub(crate) reason: &'static str,
    /// The human-readable message.
    pub(crate) message: String,
    /// The reason and message after a monotonic time, at which a failed pull becomes a back-off.
    pub(crate) then: Option<(Duration, &'static str, String)>,
}

/// The end of one run of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunEnd {
    /// The exit code: 128 plus the signal's number for a killed process.
    pub(crate) code: i32,
    /// Whether a process was killed because it needed more memory than the limit.
    pub(crate) is_out_of_memory: bool,
    /// The termination message.
    pub(crate) message: Option<String>,
}

impl RunEnd {
    /// Creates the end of a process without a message.
    pub(crate) fn exited(code: i32) -> Self {
        Self { code, is_out_of_memory: false, message: None }
    }

    /// Returns the reason in the status. As in containerd, the code doesn't matter after a lack of memory: the killed
    /// process may be a child.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self { is_out_of_memory: true, .. } => "OOMKilled",
            Self { code: 0, .. } => "Completed",
            _ => "Error",
        }
    }
}

/// A container that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Terminated {
    /// The ID; empty if it has never run.
    pub(crate) id: String,
    /// The exit code: 128 plus the signal's number for a killed process.
    pub(crate) code: i32,
    /// The reason: `Completed`, `Error`, `OOMKilled` or `StartError`.
    pub(crate) reason: &'static str,
    /// The error that prevented its start.
    pub(crate) message: Option<String>,
    /// The time at which it started.
    pub(crate) started: Timestamp,
    /// The time at which it ended.
    pub(crate) finished: Timestamp,
}

/// The record of a container.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The name.
    pub(crate) name: String,
    /// The role.
    pub(crate) role: Role,
    /// The image of the current or next run.
    pub(crate) image: String,
    /// The resources of the current or next run. Only a limit of memory has an effect on the process, if containers are
    /// isolated; the others only have one in its environment.
    pub(crate) resources: ResourceRequirements,
    /// The user and groups of the last run.
    pub(crate) identity: Option<Identity>,
    /// The current state.
    pub(crate) state: State,
    /// The end of the previous run.
    pub(crate) last: Option<Terminated>,
    /// The number of restarts.
    pub(crate) restarts: i32,
    /// The probes of the current run.
    pub(crate) probes: Probes,
    /// Whether it has ever started, as determined by its startup probe if it has one. After a sidecar has started, the
    /// next containers may start.
    pub(crate) has_begun: bool,
    /// The back-off after an end.
    pub(crate) crash: Backoff,
    /// The back-off after a failed start.
    pub(crate) refused: Backoff,
}

impl Record {
    /// Creates the record of a container that has not run yet.
    pub(crate) fn new(container: &Container, role: Role) -> Self {
        Self {
            name: container.name.clone(),
            role,
            image: container.image.clone().unwrap_or_default(),
            resources: container.resources.clone().unwrap_or_default(),
            identity: None,
            state: State::Pending,
            last: None,
            restarts: 0,
            probes: Probes::default(),
            has_begun: false,
            crash: Backoff::default(),
            refused: Backoff::default(),
        }
    }

    /// Returns whether the process runs or is being started.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.state, State::Starting | State::Running(_))
    }

    /// Returns whether a process runs or has run.
    pub(crate) fn has_run(&self) -> bool {
        self.is_running() || self.ended().is_some() || self.last.is_some()
    }

    /// Returns whether the process runs.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// Returns the end of a container that will not be restarted.
    pub(crate) fn ended(&self) -> Option<&Terminated> {
        match &self.state {
            State::Terminated(ended) => Some(ended),
            _ => None,
        }
    }

    /// Returns whether it runs and its startup probe, if any, has succeeded.
    pub(crate) fn has_started(&self) -> bool {
        self.is_running() && self.probes.has_started()
    }

    /// Returns whether it is being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(&self.state, State::Running(running) if running.kill_at.is_some())
    }

    /// Returns whether it is ready. Without a readiness probe, it is ready as soon as it has started.
    pub(crate) fn is_ready(&self) -> bool {
        match self.role {
            Role::Init => self.ended().is_some_and(|ended| ended.code == 0),
            Role::Sidecar | Role::Main => self.is_running() && self.probes.is_ready(),
            // As in Kubernetes, whose kubelet doesn't determine it.
            Role::Ephemeral => false,
        }
    }

    /// Returns whether the containers after it may start.
    pub(crate) fn lets_pass(&self) -> bool {
        match self.role {
            Role::Init => self.ended().is_some_and(|ended| ended.code == 0),
            Role::Sidecar => self.has_begun || self.ended().is_some(),
            Role::Main | Role::Ephemeral => true,
        }
    }

    /// Returns the monotonic time at which it needs another step.
    pub(crate) fn wake(&self) -> Option<Duration> {
        match &self.state {
            State::Running(Running { kill_at: Some(at), killed: false, .. }) => Some(*at),
            State::Waiting(Waiting { then: Some((at, ..)), .. }) => Some(*at),
            State::Waiting(waiting) => Some(waiting.until),
            _ => None,
        }
    }
}
