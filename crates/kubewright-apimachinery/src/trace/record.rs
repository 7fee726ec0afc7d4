//! The trace of one reconcile.

use std::{borrow::Cow, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::form;

/// The version of the JSON form. It changes when a field changes its meaning or is removed. New fields and new
/// [reasons](Reason) may be added without a new version.
pub const VERSION: u32 = 1;

/// One reconcile: its triggers, its reads and writes, its outcome, and when the key is due again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Trace {
    /// The controller's name.
    #[serde(with = "form::text")]
    pub controller: Arc<str>,
    /// The reconciled kind, such as `PodSet`.
    pub kind: Cow<'static, str>,
    /// The reconciled object: `namespace/name`, or just the name.
    pub object: String,
    /// The reconcile's id, as in the log (`reconcile_id`).
    pub id: String,
    /// 1 plus the number of failures since the last success.
    pub attempt: u32,
    /// The start time.
    pub started: Timestamp,
    /// The duration of the run.
    #[serde(rename = "durationSeconds", with = "form::seconds")]
    pub duration: Duration,
    /// The time for which the key was ready and waited for a worker.
    #[serde(rename = "queuedSeconds", with = "form::seconds")]
    pub queued: Duration,
    /// The time for which the read-your-writes barrier held the key back, if it did; part of [`queued`](Self::queued).
    #[serde(skip_serializing_if = "Option::is_none", rename = "heldSeconds", with = "form::maybe_seconds")]
    pub held: Option<Duration>,
    /// The triggers of the run, in order of occurrence.
    pub triggers: Vec<Trigger>,
    /// The number of further triggers, which are not kept.
    #[serde(skip_serializing_if = "form::is_zero")]
    pub more_triggers: u32,
    /// The reads, in order.
    pub reads: Vec<Read>,
    /// The number of further reads, which are not kept.
    #[serde(skip_serializing_if = "form::is_zero")]
    pub more_reads: u32,
    /// The writes, in order.
    pub writes: Vec<Write>,
    /// The number of further writes, which are not kept.
    #[serde(skip_serializing_if = "form::is_zero")]
    pub more_writes: u32,
    /// The recorded events.
    pub events: Vec<RecordedEvent>,
    /// The number of further events, which are not kept.
    #[serde(skip_serializing_if = "form::is_zero")]
    pub more_events: u32,
    /// The outcome.
    pub end: End,
    /// The next run of the key, unless something triggers it earlier.
    pub next: Next,
}

/// The reason for a reconcile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Trigger {
    /// The kind of trigger.
    pub reason: Reason,
    /// The kind of the object that changed, such as `Pod`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Cow<'static, str>>,
    /// The object that changed, or the name of the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The paths of the fields that changed, such as `spec.replicas`, never their values. Empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// The number of further fields that changed.
    #[serde(skip_serializing_if = "form::is_zero")]
    pub more_fields: u32,
    /// The number of occurrences while the key waited.
    #[serde(skip_serializing_if = "form::is_one")]
    pub times: u32,
    /// The time of its first occurrence.
    pub at: Timestamp,
}

/// The kinds of triggers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Reason {
    /// An object was created.
    Added,
    /// An object was updated.
    Updated,
    /// An object was deleted.
    Deleted,
    /// The object existed when the controller started.
    InitialList,
    /// A kind that a run started to watch was listed for the first time.
    Listed,
    /// The periodic resync of the cache, without a change.
    Resync,
    /// The previous run requested another run at once.
    Requeue,
    /// The time requested by the previous run was reached.
    Timer,
    /// The previous run failed, and its backoff is over.
    Backoff,
    /// A channel named the key.
    Channel,
    /// Unknown, because too many keys were waiting, or because a newer version of the runtime wrote it.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A read from the cache or from the API server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Read {
    /// The kind of the objects read, such as `Pod`.
    pub kind: Cow<'static, str>,
    /// The query.
    #[serde(flatten)]
    pub query: Query,
    /// True if the read was sent to the API server; otherwise it was served from the cache.
    pub live: bool,
    /// The number of objects found; absent if the read failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<u32>,
    /// The duration of a live read.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "durationSeconds",
        with = "form::maybe_seconds"
    )]
    pub duration: Option<Duration>,
    /// The error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The query of a read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Query {
    /// One object.
    Name {
        /// The key of the object.
        object: String,
    },
    /// Objects of one or all namespaces, by their labels.
    Labels {
        /// The namespace; absent for all.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// The selector in the syntax of `kubectl -l`; empty for every object.
        selector: String,
    },
    /// Objects by their controller, usually the reconciled object.
    Owner,
    /// Objects by an index of the cache.
    Index {
        /// The name of the index.
        index: String,
        /// The indexed value.
        value: String,
    },
    /// A count of all cached objects.
    Cache,
    /// A query of a newer version of the runtime.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Write {
    /// The RBAC verb, such as `create`, `update`, `patch` or `delete`; `apply` for a server-side apply.
    pub verb: Cow<'static, str>,
    /// The kind of the written object, such as `Pod`.
    pub kind: Cow<'static, str>,
    /// The object. The name is empty for a collection delete. It is the prefix and `*` if the API server should have
    /// generated it and did not respond.
    pub object: String,
    /// The subresource, such as `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// True for a dry run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The HTTP status of the response; absent without a response, in which case the write may have taken effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error, if it failed. Errors about Secrets are not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// True if the write changed anything; absent if unknown. For an update, patch or apply it is derived from the
    /// resource version, if the controller caches the object; a concurrent change by another client is attributed to
    /// this write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
    /// The time until the response.
    #[serde(skip_serializing_if = "Option::is_none", rename = "durationSeconds", with = "form::maybe_seconds")]
    pub duration: Option<Duration>,
    /// The latest version of the object that the run had read or written before, if the traces have versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_version: Option<u64>,
    /// The version of the object in the response, if the traces have versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// A recorded event, without its message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecordedEvent {
    /// True for an event of type `Warning`.
    pub warning: bool,
    /// The reason, such as `SuccessfulCreate`.
    pub reason: String,
}

/// The outcome of a reconcile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "camelCase")]
#[non_exhaustive]
pub enum End {
    /// The run succeeded.
    Done,
    /// The reconciler returned an error.
    Failed {
        /// The error and its causes, as in the log.
        error: String,
        /// True for a terminal error, which is retried only after a change.
        terminal: bool,
    },
    /// The reconciler panicked.
    Panicked {
        /// The message of the panic.
        error: String,
    },
    /// The run exceeded the time limit and was aborted.
    TimedOut {
        /// The limit.
        #[serde(rename = "limitSeconds", with = "form::seconds")]
        limit: Duration,
    },
    /// An outcome of a newer version of the runtime.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The next run of a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "when", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Next {
    /// On the next change.
    Change,
    /// At once.
    Now,
    /// After a delay.
    After {
        /// The delay.
        #[serde(default, rename = "delaySeconds", with = "form::seconds")]
        delay: Duration,
        /// The resulting time.
        time: Timestamp,
    },
    /// At a wall-clock time.
    At {
        /// The time.
        time: Timestamp,
    },
    /// A schedule of a newer version of the runtime.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Default for Trigger {
    /// Returns a trigger without a reason, an object and a time, which occurred once.
    fn default() -> Self {
        Self {
            reason: Reason::Unknown,
            kind: None,
            object: None,
            fields: Vec::new(),
            more_fields: 0,
            times: 1,
            at: Timestamp::UNIX_EPOCH,
        }
    }
}

impl Trigger {
    /// Creates a trigger without an object and without a time.
    pub fn new(reason: Reason) -> Self {
        Self { reason, ..Self::default() }
    }

    /// Creates the trigger of a change of an object, without a time.
    pub fn change(reason: Reason, kind: impl Into<Cow<'static, str>>, object: impl Into<String>) -> Self {
        Self { kind: Some(kind.into()), object: Some(object.into()), ..Self::new(reason) }
    }

    /// Creates the trigger of a channel, which may have a name, without a time.
    pub fn channel(name: Option<&str>) -> Self {
        Self { object: name.map(Into::into), ..Self::new(Reason::Channel) }
    }

    /// Creates the trigger of the first list of a kind, without a time.
    pub fn listed(kind: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: Some(kind.into()), ..Self::new(Reason::Listed) }
    }
}

impl Read {
    /// Creates a read from the cache.
    pub fn cached(kind: impl Into<Cow<'static, str>>, query: Query, found: u32) -> Self {
        Self { kind: kind.into(), query, found: Some(found), ..Self::default() }
    }
}

impl Write {
    /// Creates a write without a response.
    pub fn new(
        verb: impl Into<Cow<'static, str>>,
        kind: impl Into<Cow<'static, str>>,
        object: impl Into<String>,
    ) -> Self {
        Self { verb: verb.into(), kind: kind.into(), object: object.into(), ..Self::default() }
    }

    /// Returns whether the write is known to have been successful.
    pub fn is_successful(&self) -> bool {
        self.error.is_none() && self.status.is_some_and(|status| status < 400)
    }
}

impl RecordedEvent {
    /// Creates a recorded event.
    pub fn new(warning: bool, reason: impl Into<String>) -> Self {
        Self { warning, reason: reason.into() }
    }
}
