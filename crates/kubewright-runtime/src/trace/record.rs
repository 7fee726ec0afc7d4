//! The trace of one reconcile, in Rust and as JSON.

use std::{borrow::Cow, mem::size_of, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::core::Selector;
use serde::{Deserialize, Serialize};

use super::form;
use crate::object::{KindName, ObjectKey};

/// The version of the JSON form. It changes when a field changes its meaning or is removed. New fields and new
/// [reasons](Reason) may be added without a new version.
pub const VERSION: u32 = 1;

/// One reconcile: its triggers, its reads and writes, its outcome, and when the key is due again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Trace {
    /// The controller's name.
    #[serde(with = "form::text")]
    pub controller: Arc<str>,
    /// The reconciled kind, such as `PodSet`.
    pub kind: Cow<'static, str>,
    /// The reconciled object: `namespace/name`, or just the name.
    #[serde(with = "form::key")]
    pub object: ObjectKey,
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
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "heldSeconds", with = "form::maybe_seconds")]
    pub held: Option<Duration>,
    /// The triggers of the run, in order of occurrence.
    pub triggers: Vec<Trigger>,
    /// The number of further triggers, which are not kept.
    #[serde(default, skip_serializing_if = "form::is_zero")]
    pub more_triggers: u32,
    /// The reads, in order.
    pub reads: Vec<Read>,
    /// The number of further reads, which are not kept.
    #[serde(default, skip_serializing_if = "form::is_zero")]
    pub more_reads: u32,
    /// The writes, in order.
    pub writes: Vec<Write>,
    /// The number of further writes, which are not kept.
    #[serde(default, skip_serializing_if = "form::is_zero")]
    pub more_writes: u32,
    /// The recorded events.
    pub events: Vec<RecordedEvent>,
    /// The number of further events, which are not kept.
    #[serde(default, skip_serializing_if = "form::is_zero")]
    pub more_events: u32,
    /// The outcome.
    pub end: End,
    /// The next run of the key, unless something triggers it earlier.
    pub next: Next,
}

/// The reason for a reconcile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Trigger {
    /// The kind of trigger.
    pub reason: Reason,
    /// The kind of the object that changed, such as `Pod`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Cow<'static, str>>,
    /// The object that changed, or the name of the channel.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "form::maybe_key")]
    pub object: Option<ObjectKey>,
    /// The paths of the fields that changed, such as `spec.replicas`, never their values. Empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// The number of further fields that changed.
    #[serde(default, skip_serializing_if = "form::is_zero")]
    pub more_fields: u32,
    /// The number of occurrences while the key waited.
    #[serde(default = "form::one", skip_serializing_if = "form::is_one")]
    pub times: u32,
    /// The time of its first occurrence.
    pub at: Timestamp,
}

/// The kinds of triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Unknown, because too many keys were waiting.
    #[serde(other)]
    Unknown,
}

/// A read from the cache or from the API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The query of a read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Query {
    /// One object.
    Name {
        /// The key of the object.
        #[serde(with = "form::key")]
        object: ObjectKey,
    },
    /// Objects of one or all namespaces, by their labels.
    Labels {
        /// The namespace; absent for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
}

/// A write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Write {
    /// The RBAC verb, such as `create`, `update`, `patch` or `delete`; `apply` for a server-side apply.
    pub verb: Cow<'static, str>,
    /// The kind of the written object, such as `Pod`.
    pub kind: Cow<'static, str>,
    /// The object. The name is empty for a collection delete. It is the prefix and `*` if the API server should have
    /// generated it and did not respond.
    #[serde(with = "form::key")]
    pub object: ObjectKey,
    /// The subresource, such as `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// True for a dry run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The HTTP status of the response; absent without a response, in which case the write may have taken effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error, if it failed. Errors about Secrets are not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// True if the write changed anything; absent if unknown. For an update, patch or apply it is derived from the
    /// resource version, if the controller caches the object; a concurrent change by another client is attributed to
    /// this write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
    /// The time until the response.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "durationSeconds",
        with = "form::maybe_seconds"
    )]
    pub duration: Option<Duration>,
}

/// A recorded event, without its message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecordedEvent {
    /// True for an event of type `Warning`.
    pub warning: bool,
    /// The reason, such as `SuccessfulCreate`.
    pub reason: String,
}

/// The outcome of a reconcile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
}

/// The next run of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        #[serde(rename = "delaySeconds", with = "form::seconds")]
        delay: Duration,
        /// The resulting time.
        time: Timestamp,
    },
    /// At a wall-clock time.
    At {
        /// The time.
        time: Timestamp,
    },
}

impl Query {
    pub(crate) fn labels(namespace: Option<&str>, selector: &Selector) -> Self {
        Self::Labels { namespace: namespace.map(Into::into), selector: selector.to_string() }
    }
}

impl Trigger {
    /// Creates a trigger without an object and without a time.
    pub(crate) fn new(reason: Reason) -> Self {
        let at = Timestamp::UNIX_EPOCH;
        Self { reason, kind: None, object: None, fields: Vec::new(), more_fields: 0, times: 1, at }
    }

    /// Creates the trigger of a channel.
    pub(crate) fn channel(name: Option<&str>) -> Self {
        Self { object: name.map(ObjectKey::cluster), ..Self::new(Reason::Channel) }
    }

    /// Creates the trigger of a changed object.
    pub(crate) fn change(reason: Reason, kind: Cow<'static, str>, object: ObjectKey) -> Self {
        Self { kind: Some(kind), object: Some(object), ..Self::new(reason) }
    }

    /// Creates the trigger of the first list of a kind.
    pub(crate) fn listed(kind: &KindName) -> Self {
        Self { kind: Some(kind.kind.clone().into()), ..Self::new(Reason::Listed) }
    }

    /// Sets the time.
    pub(crate) fn at(self, at: Timestamp) -> Self {
        Self { at, ..self }
    }

    /// Returns whether the trigger is a repetition of another.
    fn is_as(&self, other: &Self) -> bool {
        self.reason == other.reason && self.kind == other.kind && self.object == other.object
    }

    /// Counts a repetition and adds its fields, up to `most`.
    fn merge(&mut self, again: Self, most: usize) {
        self.times = self.times.saturating_add(again.times);
        self.more_fields = self.more_fields.max(again.more_fields);
        self.add_fields(again.fields, most);
    }

    /// Inserts fields before the known ones, up to `most`.
    pub(super) fn prepend_fields(&mut self, fields: Vec<String>, most: usize) {
        let later = std::mem::take(&mut self.fields);
        self.add_fields(fields, most);
        self.add_fields(later, most);
    }

    fn add_fields(&mut self, fields: Vec<String>, most: usize) {
        for field in fields {
            if self.fields.contains(&field) {
                continue;
            }
            if self.fields.len() < most {
                self.fields.push(field);
            } else {
                self.more_fields = self.more_fields.saturating_add(1);
            }
        }
    }

    /// Adds a trigger to those of a key, of which at most `most` are kept. Returns its index if it is kept.
    pub(super) fn add(
        waiting: &mut Vec<Self>,
        more: &mut u32,
        trigger: Self,
        most: usize,
        most_fields: usize,
    ) -> Option<usize> {
        if let Some(known) = waiting.iter().position(|known| known.is_as(&trigger)) {
            waiting[known].merge(trigger, most_fields);
            return Some(known);
        }
        if waiting.len() < most {
            waiting.push(trigger);
            return Some(waiting.len() - 1);
        }
        *more = more.saturating_add(1);
        None
    }
}

impl Trace {
    /// Returns the approximate memory in bytes.
    pub(super) fn size(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let triggers = self.triggers.iter().map(|trigger| {
            let fields = trigger.fields.iter().map(|field| field.len() + size_of::<String>()).sum::<usize>();
            size_of::<Trigger>() + key(trigger.object.as_ref()) + fields
        });
        let reads = self.reads.iter().map(|read| {
            let query = match &read.query {
                Query::Name { object } => key(Some(object)),
                Query::Labels { namespace, selector } => text(namespace) + selector.len(),
                Query::Index { index, value } => index.len() + value.len(),
                Query::Owner | Query::Cache => 0,
            };
            size_of::<Read>() + query + text(&read.error)
        });
        let writes = self
            .writes
            .iter()
            .map(|write| size_of::<Write>() + key(Some(&write.object)) + text(&write.subresource) + text(&write.error));
        let events = self.events.iter().map(|event| size_of::<RecordedEvent>() + event.reason.len());
        let end = match &self.end {
            End::Failed { error, .. } | End::Panicked { error } => error.len(),
            End::Done | End::TimedOut { .. } => 0,
        };
        let parts = triggers.chain(reads).chain(writes).chain(events).sum::<usize>();
        size_of::<Self>() + key(Some(&self.object)) + self.id.len() + end + parts
    }
}

fn key(key: Option<&ObjectKey>) -> usize {
    key.map_or(0, |key| key.name().len() + key.namespace().map_or(0, str::len) + 2 * size_of::<[usize; 2]>())
}
