//! What is kept of one reconcile, as Rust values and as JSON.

use std::{borrow::Cow, mem::size_of, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::core::Selector;
use serde::{Deserialize, Serialize};

use super::form;
use crate::object::{KindName, ObjectKey};

/// The version of the JSON form. It changes when a field changes its meaning or goes; new fields and new
/// [reasons](Reason) may come without.
pub const VERSION: u32 = 1;

/// One reconcile: why it ran, what it read and wrote, how it ended, and when the key is wanted again.
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
    /// 1, and one more for each failure since the last success.
    pub attempt: u32,
    /// When it began.
    pub started: Timestamp,
    /// How long it took.
    #[serde(rename = "durationSeconds", with = "form::seconds")]
    pub duration: Duration,
    /// How long the key was ready and waited for a worker.
    #[serde(rename = "queuedSeconds", with = "form::seconds")]
    pub queued: Duration,
    /// How long the read-your-writes barrier held the key back, if it did; part of [`queued`](Self::queued).
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "heldSeconds", with = "form::maybe_seconds")]
    pub held: Option<Duration>,
    /// Why it ran, in the order of their coming.
    pub triggers: Vec<Trigger>,
    /// How many more triggers there were.
    #[serde(default, skip_serializing_if = "form::is_zero")]
    pub more_triggers: u32,
    /// What it read, in order.
    pub reads: Vec<Read>,
    /// How many more reads there were.
    #[serde(default, skip_serializing_if = "form::is_zero")]
    pub more_reads: u32,
    /// What it wrote, in order.
    pub writes: Vec<Write>,
    /// How many more writes there were.
    #[serde(default, skip_serializing_if = "form::is_zero")]
    pub more_writes: u32,
    /// The events it recorded.
    pub events: Vec<Told>,
    /// How many more events there were.
    #[serde(default, skip_serializing_if = "form::is_zero")]
    pub more_events: u32,
    /// How it ended.
    pub end: End,
    /// When the key is wanted again, if nothing happens before.
    pub next: Next,
}

/// Something that made a key be reconciled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Trigger {
    /// What it was.
    pub reason: Reason,
    /// The kind of the object that changed, such as `Pod`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Cow<'static, str>>,
    /// The object that changed, or the channel that spoke.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "form::maybe_key")]
    pub object: Option<ObjectKey>,
    /// The paths of the fields that changed, such as `spec.replicas`; never their values. Empty if they aren't known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// How many more fields changed.
    #[serde(default, skip_serializing_if = "form::is_zero")]
    pub more_fields: u32,
    /// How often it came while the key waited.
    #[serde(default = "form::one", skip_serializing_if = "form::is_one")]
    pub times: u32,
    /// When it came (first).
    pub at: Timestamp,
}

/// The kinds of triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Reason {
    /// An object appeared.
    Added,
    /// An object changed.
    Updated,
    /// An object went.
    Deleted,
    /// The controller had just come to know the object, which was there before.
    InitialList,
    /// The first list had come of a kind that a run asked to watch.
    Listed,
    /// Nothing has changed: the cache tells of everything again from time to time, as its options say.
    Resync,
    /// The run before asked to be followed at once.
    Requeue,
    /// The time had come that the run before had asked for.
    Timer,
    /// The run before had failed, and its delay was over.
    Backoff,
    /// A channel named the key.
    Channel,
    /// It isn't known: too many keys were waiting.
    #[serde(other)]
    Unknown,
}

/// A read, of the cache or live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Read {
    /// The kind that was read, such as `Pod`.
    pub kind: Cow<'static, str>,
    /// What was asked for.
    #[serde(flatten)]
    pub query: Query,
    /// Whether it went to the API server; otherwise the cache answered.
    pub live: bool,
    /// How many objects were found; absent if the read failed, or the cache itself was handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<u32>,
    /// How long a live read took.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "durationSeconds",
        with = "form::maybe_seconds"
    )]
    pub duration: Option<Duration>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a read asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Query {
    /// One object.
    Name {
        /// Its key.
        #[serde(with = "form::key")]
        object: ObjectKey,
    },
    /// Objects of a namespace, or of all, by their labels.
    Labels {
        /// The namespace; absent for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// The selector as `kubectl -l` takes it; empty for every object.
        selector: String,
    },
    /// The objects that have some controller: mostly the reconciled object.
    Owner,
    /// Objects by an index of the cache.
    Index {
        /// Its name.
        index: String,
        /// The value in it.
        value: String,
    },
    /// All that the cache has were counted.
    Cache,
}

/// A write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Write {
    /// `create`, `update`, `patch`, `apply`, `delete` and so on, as RBAC has them, and `apply` for a server-side apply.
    pub verb: Cow<'static, str>,
    /// The kind that was written, such as `Pod`.
    pub kind: Cow<'static, str>,
    /// The object; its name is empty for a deletion of many, and a prefix and `*` if the API server was to make it up and
    /// didn't answer.
    #[serde(with = "form::key")]
    pub object: ObjectKey,
    /// The subresource, such as `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// Whether the API server was only asked what it would do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The HTTP status of the answer; absent if there was none, so that the write may have happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it failed, if it did. What an answer says of a Secret is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the API server changed anything; absent if that isn't known. Of an update, a patch or an apply it is known by
    /// the object's version, if the controller's cache has the object; what another changes at the same moment counts as ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
    /// How long the answer took.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "durationSeconds",
        with = "form::maybe_seconds"
    )]
    pub duration: Option<Duration>,
}

/// An event that was recorded. Its text is not kept: `kubectl describe` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Told {
    /// Whether it was a warning.
    pub warning: bool,
    /// Its reason, such as `SuccessfulCreate`.
    pub reason: String,
}

/// How a reconcile ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "camelCase")]
#[non_exhaustive]
pub enum End {
    /// Well.
    Done,
    /// With an error.
    Failed {
        /// The error and its causes, as in the log.
        error: String,
        /// Whether it is tried again only after a change.
        terminal: bool,
    },
    /// With a panic.
    Panicked {
        /// What it said.
        error: String,
    },
    /// It took too long and was cut off.
    TimedOut {
        /// The limit.
        #[serde(rename = "limitSeconds", with = "form::seconds")]
        limit: Duration,
    },
}

/// When a key is wanted again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "when", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Next {
    /// When something changes that wakes it.
    Change,
    /// At once.
    Now,
    /// After a delay.
    After {
        /// The delay.
        #[serde(rename = "delaySeconds", with = "form::seconds")]
        delay: Duration,
        /// When that is.
        time: Timestamp,
    },
    /// When the wall clock shows a time.
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
    /// A trigger that no object has to do with, and that has no time yet.
    pub(crate) fn new(reason: Reason) -> Self {
        let at = Timestamp::UNIX_EPOCH;
        Self { reason, kind: None, object: None, fields: Vec::new(), more_fields: 0, times: 1, at }
    }

    /// Someone outside of the watches, by this name.
    pub(crate) fn channel(name: Option<&str>) -> Self {
        Self { object: name.map(ObjectKey::cluster), ..Self::new(Reason::Channel) }
    }

    /// A change of an object.
    pub(crate) fn change(reason: Reason, kind: Cow<'static, str>, object: ObjectKey) -> Self {
        Self { kind: Some(kind), object: Some(object), ..Self::new(reason) }
    }

    /// The first list of a kind.
    pub(crate) fn listed(kind: &KindName) -> Self {
        Self { kind: Some(kind.kind.clone().into()), ..Self::new(Reason::Listed) }
    }

    /// The same, at this time.
    pub(crate) fn at(self, at: Timestamp) -> Self {
        Self { at, ..self }
    }

    /// Whether it is the same thing again.
    fn is_as(&self, other: &Self) -> bool {
        self.reason == other.reason && self.kind == other.kind && self.object == other.object
    }

    /// Counts the same thing again, and adds the fields that changed, up to `most`.
    fn merge(&mut self, again: Self, most: usize) {
        self.times = self.times.saturating_add(again.times);
        self.more_fields = self.more_fields.max(again.more_fields);
        self.add_fields(again.fields, most);
    }

    /// Adds fields that changed before those that are known.
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

    /// Adds a trigger to those that wait, of which `most` are kept. Returns where it is, if it is kept.
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
    /// About how much memory it takes.
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
        let events = self.events.iter().map(|event| size_of::<Told>() + event.reason.len());
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
