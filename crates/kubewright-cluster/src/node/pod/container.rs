//! One container of a pod: its state, and its past.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;

use super::probe::Probes;
use crate::node::backoff::Backoff;

/// A point in time, on both scales.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// For what people read.
    pub(crate) wall: Timestamp,
    /// For waiting.
    pub(crate) monotonic: Duration,
}

/// When a container runs in its pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Before the main ones, each to its end.
    Init,
    /// From its turn among the init containers until the main ones have ended.
    Sidecar,
    /// After the init containers.
    Main,
}

/// What a container does at the moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    /// It has not been its turn yet.
    Pending,
    /// Its process is being started.
    Starting,
    /// Its process runs.
    Running(Running),
    /// It is to be started, later.
    Waiting(Waiting),
    /// It has ended for good.
    Ended(Ended),
}

/// A running container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Running {
    /// Its id, as `containerID` has it.
    pub(crate) id: String,
    /// When it started.
    pub(crate) since: Timestamp,
    /// It has been asked to end, and is killed at this monotonic time.
    pub(crate) kill_at: Option<Duration>,
    /// It has been killed.
    pub(crate) killed: bool,
    /// It was stopped to run anew, with another image.
    pub(crate) replaced: bool,
}

/// A container that waits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waiting {
    /// The monotonic time at which it is tried again.
    pub(crate) until: Duration,
    /// `CrashLoopBackOff`, `ErrImagePull`, …
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
    /// The reason and message to show from a monotonic time on, as a failed pull turns into a back-off.
    pub(crate) then: Option<(Duration, &'static str, String)>,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    /// Its id; empty when it never ran.
    pub(crate) id: String,
    /// The exit code, 128 and the signal's number for a killed process.
    pub(crate) code: i32,
    /// `Completed`, `Error` or `StartError`.
    pub(crate) reason: &'static str,
    /// Why it did not start.
    pub(crate) message: Option<String>,
    /// When it started.
    pub(crate) started: Timestamp,
    /// When it ended.
    pub(crate) finished: Timestamp,
}

/// All that is known of a container.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Its name.
    pub(crate) name: String,
    /// When it runs.
    pub(crate) role: Role,
    /// The image it was last started with, or is to be.
    pub(crate) image: String,
    /// Now.
    pub(crate) state: State,
    /// The end of the run before.
    pub(crate) last: Option<Ended>,
    /// How often it was started again.
    pub(crate) restarts: i32,
    /// The probes of the run.
    pub(crate) probes: Probes,
    /// It has once started, by its startup probe if it has one: a sidecar then lets the others begin.
    pub(crate) has_begun: bool,
    /// The back-off after an end.
    pub(crate) crash: Backoff,
    /// The back-off after a start that was refused.
    pub(crate) refused: Backoff,
}

impl Record {
    /// A container that has not run yet.
    pub(crate) fn new(container: &Container, init: bool) -> Self {
        let role = match (init, container.restart_policy.as_deref()) {
            (true, Some("Always")) => Role::Sidecar,
            (true, _) => Role::Init,
            (false, _) => Role::Main,
        };
        Self {
            name: container.name.clone(),
            role,
            image: container.image.clone().unwrap_or_default(),
            state: State::Pending,
            last: None,
            restarts: 0,
            probes: Probes::default(),
            has_begun: false,
            crash: Backoff::default(),
            refused: Backoff::default(),
        }
    }

    /// Its process runs or is about to.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.state, State::Starting | State::Running(_))
    }

    /// Its process runs.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// How it ended, if that was for good.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        match &self.state {
            State::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// It runs, and its startup probe has succeeded if it has one.
    pub(crate) fn has_started(&self) -> bool {
        self.is_running() && self.probes.has_started()
    }

    /// It is being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(&self.state, State::Running(running) if running.kill_at.is_some())
    }

    /// It may serve. Without a readiness probe, it may as soon as it has started.
    pub(crate) fn is_ready(&self) -> bool {
        match self.role {
            Role::Init => self.ended().is_some_and(|ended| ended.code == 0),
            Role::Sidecar | Role::Main => self.is_running() && self.probes.is_ready(),
        }
    }

    /// The init containers behind it may go on.
    pub(crate) fn lets_pass(&self) -> bool {
        match self.role {
            Role::Init => self.ended().is_some_and(|ended| ended.code == 0),
            Role::Sidecar => self.has_begun || self.ended().is_some(),
            Role::Main => true,
        }
    }

    /// When something is to be done for it, if time alone brings that about.
    pub(crate) fn wake(&self) -> Option<Duration> {
        match &self.state {
            State::Running(Running { kill_at: Some(at), killed: false, .. }) => Some(*at),
            State::Waiting(Waiting { then: Some((at, ..)), .. }) => Some(*at),
            State::Waiting(waiting) => Some(waiting.until),
            _ => None,
        }
    }
}
