//! The JSON pages of an operator's traces, limited to the fields in use. Unknown fields are ignored.

use jiff::Timestamp;
use serde::Deserialize;

/// The supported version of the format.
pub(crate) const VERSION: u32 = 1;

/// The page of all controllers.
#[derive(Debug, Deserialize)]
pub(crate) struct Overview {
    pub(crate) version: u32,
    pub(crate) controllers: Vec<Controller>,
}

/// A controller.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Controller {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// The group of the kind; older operators omit it.
    pub(crate) group: Option<String>,
    pub(crate) phase: Phase,
    #[serde(default)]
    pub(crate) missing: Vec<String>,
    pub(crate) workers: usize,
    pub(crate) ready: usize,
    pub(crate) running: usize,
    #[serde(default)]
    pub(crate) displaced: u64,
}

/// The phase of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    Standby,
    Syncing,
    Working,
    Stopping,
    #[serde(other)]
    Unknown,
}

/// The page of an object.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Page {
    pub(crate) version: u32,
    pub(crate) time: Timestamp,
    pub(crate) controller: Controller,
    pub(crate) object: String,
    pub(crate) exists: bool,
    pub(crate) present: Present,
    pub(crate) waiting: Vec<Trigger>,
    pub(crate) runs: Vec<Run>,
}

/// The state of an object in a controller.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub(crate) enum Present {
    Running {
        since: Timestamp,
    },
    Held {
        since: Timestamp,
    },
    Ready,
    Delayed {
        #[serde(rename = "leftSeconds")]
        left: f64,
    },
    Idle,
    Elsewhere,
    #[serde(other)]
    Unknown,
}

/// A run of the reconciler.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    pub(crate) attempt: u32,
    pub(crate) started: Timestamp,
    #[serde(rename = "durationSeconds")]
    pub(crate) duration: f64,
    pub(crate) triggers: Vec<Trigger>,
    #[serde(default)]
    pub(crate) more_triggers: u32,
    #[serde(default)]
    pub(crate) reads: Vec<Read>,
    pub(crate) writes: Vec<Write>,
    #[serde(default)]
    pub(crate) more_writes: u32,
    pub(crate) end: End,
    pub(crate) next: Next,
}

/// A trigger of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Trigger {
    pub(crate) reason: Reason,
    pub(crate) kind: Option<String>,
    pub(crate) object: Option<String>,
    #[serde(default)]
    pub(crate) fields: Vec<String>,
    #[serde(default)]
    pub(crate) more_fields: u32,
}

/// The kinds of triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Reason {
    Added,
    Updated,
    Deleted,
    InitialList,
    Listed,
    Resync,
    Requeue,
    Timer,
    Backoff,
    Channel,
    #[serde(other)]
    Unknown,
}

/// A read of a run.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Read {
    pub(crate) kind: String,
}

/// A write of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Write {
    pub(crate) verb: String,
    pub(crate) kind: String,
    pub(crate) object: String,
    pub(crate) subresource: Option<String>,
    #[serde(default)]
    pub(crate) dry_run: bool,
    pub(crate) status: Option<u16>,
    pub(crate) error: Option<String>,
    pub(crate) changed: Option<bool>,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub(crate) enum End {
    Done,
    Failed {
        error: String,
        terminal: bool,
    },
    Panicked {
        error: String,
    },
    TimedOut {
        #[serde(rename = "limitSeconds")]
        limit: f64,
    },
    #[serde(other)]
    Unknown,
}

/// The time of the next run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "when", rename_all = "camelCase")]
pub(crate) enum Next {
    Change,
    Now,
    After {
        time: Timestamp,
    },
    At {
        time: Timestamp,
    },
    #[serde(other)]
    Unknown,
}
