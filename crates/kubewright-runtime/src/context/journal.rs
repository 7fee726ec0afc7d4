//! What a reconcile wrote: the read-your-writes barrier waits for it.
//!
//! Every request of a reconcile passes here, by [`Client::send`](crate::client::Client): reads by the cache don't.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde::Deserialize;

use crate::{
    cache::{Arrival, Kind, Objects},
    client::{Answer, Call, ClientError, Verb},
    context::Services,
    object::{KindName, ObjectKey},
    trace::{Sent, Tape},
};

/// One write that the key's next reconcile must see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) kind: Arc<KindName>,
    /// Where the object is; the cache may be fed by several watches.
    pub(crate) namespace: Option<String>,
    /// How it will show; `None` if no answer came, so that it may have happened or not, and only a live read can tell.
    pub(crate) arrival: Option<Arrival>,
    /// What it was about.
    pub(crate) objects: Objects,
}

/// The writes of one run. Clones share it: it outlives a run that is cut off, and then still has its writes.
#[derive(Clone)]
pub(crate) struct Journal {
    services: Arc<Services>,
    tape: Tape,
    entries: Arc<Mutex<Entries>>,
}

#[derive(Default)]
struct Entries {
    next: u64,
    writes: BTreeMap<u64, Write>,
    /// What was answered last about objects that were written, while the run's trace wants to know.
    versions: BTreeMap<(Arc<KindName>, ObjectKey), u64>,
}

fn own(kind: &Kind, key: &ObjectKey) -> (Arc<KindName>, ObjectKey) {
    (kind.name().clone(), key.clone())
}

impl Journal {
    /// A journal of the writes to the kinds that the controller reads from the cache. Other kinds can't be stale to it, and a
    /// run need never wait for them. The tape gets all requests, for the run's trace.
    pub(crate) fn new(services: Arc<Services>, tape: Tape) -> Self {
        Self { services, tape, entries: Arc::default() }
    }

    /// What goes into the run's trace.
    pub(crate) fn tape(&self) -> &Tape {
        &self.tape
    }

    /// Notes a write before it is sent: should its answer be lost, or the run be cut off, it stays noted. `query` is the
    /// request's.
    pub(crate) fn begin(&self, call: &Call, query: Option<&str>) -> Pending<'_> {
        let kinds = if call.changes_something() { self.read(call.kind(), call.namespace()) } else { Vec::new() };
        let before = self.version_before(call, &kinds);
        let objects = || call.name().map_or(Objects::Any, |_| Objects::one(call.key().clone()));
        let note = |kind: Arc<Kind>| (self.note(&kind, call.namespace(), None, objects()), kind);
        let noted = kinds.into_iter().map(note).collect();
        Pending { journal: self, noted, before, sent: self.tape.sent(call, query) }
    }

    /// The latest version that is known of the object: from the cache, or by the run's own last write. For the trace alone.
    fn version_before(&self, call: &Call, kinds: &[Arc<Kind>]) -> Option<u64> {
        if !self.tape.is_on() || !matches!(call.verb(), Verb::Update | Verb::Patch | Verb::Apply) {
            return None;
        }
        let written = kinds.iter().filter_map(|kind| self.entries.lock().versions.get(&own(kind, call.key())).copied());
        let cached = kinds.iter().filter_map(|kind| kind.version_of(call.key()));
        written.chain(cached).max()
    }

    /// Notes that an object was seen at this version, past the cache.
    pub(crate) fn saw(&self, kind: &KindName, key: &ObjectKey, version: Option<u64>) {
        let namespace = key.namespace();
        for kind in self.read(kind, namespace) {
            let Some(version) = version else { continue };
            kind.wrote(namespace, version);
            self.note(&kind, namespace, Some(Arrival::Version(version)), Objects::one(key.clone()));
        }
    }

    /// The copies by which the controller reads objects of a kind there. One object may be cached in several versions, each
    /// fed by a watch of its own.
    fn read(&self, kind: &KindName, namespace: Option<&str>) -> Vec<Arc<Kind>> {
        let Services { cache, kinds, watching, .. } = self.services.as_ref();
        let mut read = cache.named(kind);
        let is_read = |name: &Arc<KindName>| kinds.contains(name) || watching.has(name);
        read.retain(|kind| is_read(kind.name()) && kind.covers(namespace));
        read
    }

    pub(crate) fn writes(&self) -> Vec<Write> {
        self.entries.lock().writes.values().cloned().collect()
    }

    fn note(&self, kind: &Kind, namespace: Option<&str>, arrival: Option<Arrival>, objects: Objects) -> u64 {
        let mut entries = self.entries.lock();
        let number = entries.next;
        entries.next += 1;
        let kind = kind.name().clone();
        entries.writes.insert(number, Write { kind, namespace: namespace.map(Into::into), arrival, objects });
        number
    }
}

/// A write that was sent.
pub(crate) struct Pending<'a> {
    journal: &'a Journal,
    noted: Vec<(u64, Arc<Kind>)>,
    /// The object's version before, if that is known.
    before: Option<u64>,
    sent: Sent,
}

impl Pending<'_> {
    /// Notes how the write will show, or that there was none.
    pub(crate) fn answered(self, call: &Call, answer: &Result<Answer, ClientError>) {
        if self.noted.is_empty() {
            return self.sent.answered(call, answer, None);
        }
        let effects = effects(call, answer);
        let version = effects.as_ref().and_then(|(effects, _)| match effects.as_slice() {
            [Effect { arrival: Arrival::Version(version), .. }] => Some(*version),
            _ => None,
        });
        self.sent.answered(call, answer, self.before.zip(version).map(|(before, after)| before < after));
        self.remember(call, version);
        for (number, kind) in &self.noted {
            let Some((effects, labels)) = &effects else {
                // Nobody knows: it stays as it is noted.
                continue;
            };
            let shows = kind.shows(call.namespace(), labels.as_ref());
            // What the cache isn't to show would be waited for in vain.
            let awaited =
                effects.iter().filter_map(|effect| if shows { Some(effect.clone()) } else { effect.unseen() });
            let mut awaited = awaited.collect::<Vec<_>>().into_iter();
            match awaited.next() {
                None => drop(self.journal.entries.lock().writes.remove(number)),
                Some(effect) => self.settle(*number, kind, effect),
            }
            for effect in awaited {
                let again = self.again(*number, kind);
                again.into_iter().for_each(|number| self.settle(number, kind, effect.clone()));
            }
        }
    }

    fn remember(&self, call: &Call, version: Option<u64>) {
        let Some(version) = version.filter(|_| self.journal.tape.is_on()) else { return };
        let mut entries = self.journal.entries.lock();
        for (_, kind) in &self.noted {
            entries.versions.insert(own(kind, call.key()), version);
        }
    }

    fn settle(&self, number: u64, kind: &Kind, Effect { arrival, key }: Effect) {
        let mut entries = self.journal.entries.lock();
        let Some(write) = entries.writes.get_mut(&number) else { return };
        if let Arrival::Version(version) | Arrival::Gone { version: Some(version), .. } = &arrival {
            kind.wrote(write.namespace.as_deref(), *version);
        }
        write.objects = Objects::one(key);
        write.arrival = Some(arrival);
    }

    /// A second entry for the same kind: one request may delete many objects.
    fn again(&self, number: u64, kind: &Kind) -> Option<u64> {
        let namespace = self.journal.entries.lock().writes.get(&number)?.namespace.clone();
        Some(self.journal.note(kind, namespace.as_deref(), None, Objects::Any))
    }
}

/// What a write has done to an object.
#[derive(Clone)]
struct Effect {
    key: ObjectKey,
    arrival: Arrival,
}

impl Effect {
    fn version(key: ObjectKey, version: u64) -> Self {
        Self { key, arrival: Arrival::Version(version) }
    }

    fn gone(key: ObjectKey, uid: Option<String>, version: Option<u64>) -> Self {
        let arrival = Arrival::Gone { key: key.clone(), uid: uid.unwrap_or_default(), version };
        Self { key, arrival }
    }

    /// It, if the object may be one that the cache doesn't show: then it won't see its versions, but may see it go.
    fn unseen(&self) -> Option<Self> {
        match &self.arrival {
            Arrival::Version(_) => None,
            Arrival::Gone { uid, .. } => Some(Self::gone(self.key.clone(), Some(uid.clone()), None)),
        }
    }
}

/// What the answer says of the objects, and the labels if it is of one: none, if nothing was written, and `None` if that
/// can't be told.
fn effects(call: &Call, answer: &Result<Answer, ClientError>) -> Option<(Vec<Effect>, Labels)> {
    match (call.verb(), answer) {
        (Verb::Delete, Err(error)) if error.is_not_found() => {
            Some((vec![Effect::gone(call.key().clone(), call.uid().map(Into::into), None)], None))
        }
        (_, Err(error)) if error.is_uncertain() => None,
        (_, Err(_)) => Some((Vec::new(), None)),
        (verb, Ok(answer)) => {
            let Told { metadata, details, items } = serde_json::from_str(&answer.text).ok()?;
            let version = metadata.version();
            let effects = match verb {
                Verb::Delete => {
                    let uid = metadata.uid.or(details.uid).or(call.uid().map(Into::into));
                    vec![Effect::gone(call.key().clone(), uid, version.or(call.version()))]
                }
                Verb::DeleteCollection => {
                    let item = |Item { metadata }| {
                        let key = call.key().sibling(metadata.name.as_deref().unwrap_or_default());
                        Effect::gone(key, metadata.uid.clone(), metadata.version())
                    };
                    items?.into_iter().map(item).collect()
                }
                // A subresource may be answered with something that has no version: an eviction, for one.
                _ => {
                    let name = metadata.name.as_deref().unwrap_or(call.key().name());
                    vec![Effect::version(call.key().sibling(name), version?)]
                }
            };
            Some((effects, metadata.labels))
        }
    }
}

/// What of an answer tells how a write will show: of an object, a `Status`, or a list.
#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    details: Details,
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Labels,
}

impl Metadata {
    fn version(&self) -> Option<u64> {
        self.resource_version.as_deref()?.parse().ok()
    }
}

type Labels = Option<BTreeMap<String, String>>;

#[derive(Default, Deserialize)]
struct Details {
    uid: Option<String>,
}
