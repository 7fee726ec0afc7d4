//! What a reconcile wrote, and what it read past the cache: the read-your-writes barrier waits until the cache shows it.
//!
//! Every request of a reconcile passes here, by [`Client::send`](crate::client::Client): reads by the cache don't. A live read
//! that shows a newer state than the cache is waited for as a write is: so a cache that is behind is made to list, and a key's
//! runs never see an older state than an earlier one did.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde::Deserialize;

use crate::{
    cache::{Arrival, Kind, Objects},
    client::{Answer, Call, Client, ClientError, ObservedRequest, Operation, RequestObserver},
    context::Services,
    object::{KindName, ObjectKey},
    trace::{RunRecorder, Sent},
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
    recorder: RunRecorder,
    entries: Arc<Mutex<Entries>>,
}

#[derive(Default)]
struct Entries {
    next: u64,
    writes: BTreeMap<u64, Write>,
    /// The newest that live reads have shown of each kind and namespace, where the cache was older.
    reads: BTreeMap<(Arc<KindName>, Option<String>), (u64, Objects)>,
    /// What was answered last about objects that were written, while the run's trace wants to know.
    versions: BTreeMap<(Arc<KindName>, ObjectKey), u64>,
}

fn own(kind: &Kind, key: &ObjectKey) -> (Arc<KindName>, ObjectKey) {
    (kind.name().clone(), key.clone())
}

impl Journal {
    /// A journal of the writes to the kinds that the controller reads from the cache. Other kinds can't be stale to it, and a
    /// run need never wait for them. The recorder gets all requests, for the run's trace.
    pub(crate) fn new(services: Arc<Services>, recorder: RunRecorder) -> Self {
        Self { services, recorder, entries: Arc::default() }
    }

    /// Returns a client whose writes are tracked, and whose requests are in the run's trace and have spans.
    pub(crate) fn observing(&self, client: Client) -> Client {
        #[cfg(feature = "opentelemetry")]
        let client = client.observed(Arc::new(crate::telemetry::RequestSpans));
        client.observed(Arc::new(self.clone()))
    }

    /// What goes into the run's trace.
    pub(crate) fn recorder(&self) -> &RunRecorder {
        &self.recorder
    }

    /// The latest version that is known of the object: from the cache, or by the run's own last write. For the trace alone.
    fn version_before(&self, call: &Call, kinds: &[Arc<Kind>]) -> Option<u64> {
        if !self.recorder.is_on()
            || !matches!(call.operation(), Operation::Update | Operation::Patch | Operation::Apply)
        {
            return None;
        }
        let written = kinds.iter().filter_map(|kind| self.entries.lock().versions.get(&own(kind, call.key())).copied());
        let cached = kinds.iter().filter_map(|kind| kind.version_of(call.key()));
        written.chain(cached).max()
    }

    /// Notes that a live read has shown an object, unless the cache is as new or isn't to show it.
    fn saw(&self, kind: &Kind, Item { metadata }: &Item, call: &Call) {
        let namespace = metadata.namespace.as_deref().or(call.namespace());
        let Some(version) = metadata.version() else { return };
        let is_shown = kind.has_arrived(namespace, &Arrival::Version(version));
        if is_shown || !kind.shows(namespace, metadata.labels.as_ref()) {
            return;
        }
        kind.note_version(namespace, version);
        let name = metadata.name.as_deref().unwrap_or(call.key().name());
        let key =
            namespace.map_or_else(|| ObjectKey::cluster(name), |namespace| ObjectKey::namespaced(namespace, name));
        let object = Objects::one(key);
        let mut entries = self.entries.lock();
        let known = entries.reads.entry((kind.name().clone(), namespace.map(Into::into)));
        let (newest, objects) = known.or_insert_with(|| (version, object.clone()));
        *newest = version.max(*newest);
        objects.merge(&object);
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

    /// All that the key's next run is to see.
    pub(crate) fn writes(&self) -> Vec<Write> {
        let entries = self.entries.lock();
        let reads = entries.reads.iter().map(|((kind, namespace), (version, objects))| Write {
            kind: kind.clone(),
            namespace: namespace.clone(),
            arrival: Some(Arrival::Version(*version)),
            objects: objects.clone(),
        });
        entries.writes.values().cloned().chain(reads).collect()
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

/// A copy of the kind that a request is about.
struct Noted {
    /// The number of its entry, if it is a write.
    number: Option<u64>,
    kind: Arc<Kind>,
    /// The UID that the copy had under the name before the request was sent.
    known: Option<String>,
}

impl RequestObserver for Journal {
    /// Notes a write before it is sent: should its answer be lost, or the run be cut off, it stays noted.
    fn begin<'a>(&'a self, call: &Call, request: &http::Request<Vec<u8>>) -> Box<dyn ObservedRequest + 'a> {
        let kinds = if call.is_dry_run() { Vec::new() } else { self.read(call.kind(), call.namespace()) };
        let before = self.version_before(call, &kinds);
        let objects = || call.name().map_or(Objects::Any, |_| Objects::one(call.key().clone()));
        let note = |kind: Arc<Kind>| {
            let number = call.changes_something().then(|| self.note(&kind, call.namespace(), None, objects()));
            let asks_by_name =
                matches!(call.operation(), Operation::Get | Operation::Delete) && call.subresource().is_none();
            let known = if asks_by_name { kind.uid_of(call.key()) } else { None };
            Noted { number, kind, known }
        };
        let noted = kinds.into_iter().map(note).collect();
        Box::new(Pending { journal: self, noted, before, sent: self.recorder.sent(call, request.uri().query()) })
    }
}

/// A request that was sent.
struct Pending<'a> {
    journal: &'a Journal,
    noted: Vec<Noted>,
    /// The object's version before, if that is known.
    before: Option<u64>,
    sent: Sent,
}

impl ObservedRequest for Pending<'_> {
    /// Notes how the write will show, or that there was none; of a read, what it shows and the cache doesn't.
    fn answered(self: Box<Self>, call: &Call, answer: &Result<Answer, ClientError>) {
        if !call.operation().is_write() {
            self.noted.iter().for_each(|noted| self.read(noted, call, answer));
        }
        if self.noted.is_empty() || !call.operation().is_write() {
            return self.sent.answered(call, answer, None);
        }
        let effects = effects(call, answer);
        let version = effects.as_ref().and_then(|(effects, _)| match effects.as_slice() {
            [Effect { arrival: Arrival::Version(version), .. }] => Some(*version),
            _ => None,
        });
        self.sent.answered(call, answer, self.before.zip(version).map(|(before, after)| before < after));
        self.remember(call, version);
        for Noted { number, kind, known } in &self.noted {
            let Some(number) = number else { continue };
            let Some((effects, labels)) = &effects else {
                // Nobody knows: it stays as it is noted.
                continue;
            };
            let shows = kind.shows(call.namespace(), labels.as_ref());
            // What the cache isn't to show would be waited for in vain.
            let effects = effects.iter().flat_map(|effect| effect.of(known.as_deref()));
            let awaited = effects.filter_map(|effect| if shows { Some(effect) } else { effect.unseen() });
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
}

impl Pending<'_> {
    /// Notes what a live read shows of one copy of the kind.
    fn read(&self, Noted { kind, known, .. }: &Noted, call: &Call, answer: &Result<Answer, ClientError>) {
        match (answer, known) {
            (Ok(answer), _) => {
                let Ok(Told { metadata, items, .. }) = serde_json::from_str(&answer.text) else { return };
                let items = items.unwrap_or_else(|| vec![Item { metadata }]);
                items.iter().for_each(|item| self.journal.saw(kind, item, call));
            }
            (Err(error), Some(uid)) if error.is_not_found() => {
                let gone = Arrival::Gone { key: call.key().clone(), uid: uid.clone(), version: None };
                self.journal.note(kind, call.namespace(), Some(gone), Objects::one(call.key().clone()));
            }
            _ => {}
        }
    }

    fn remember(&self, call: &Call, version: Option<u64>) {
        let Some(version) = version.filter(|_| self.journal.recorder.is_on()) else { return };
        let mut entries = self.journal.entries.lock();
        for Noted { kind, .. } in &self.noted {
            entries.versions.insert(own(kind, call.key()), version);
        }
    }

    fn settle(&self, number: u64, kind: &Kind, Effect { arrival, key }: Effect) {
        let mut entries = self.journal.entries.lock();
        let Some(write) = entries.writes.get_mut(&number) else { return };
        if let Arrival::Version(version) | Arrival::Gone { version: Some(version), .. } = &arrival {
            kind.note_version(write.namespace.as_deref(), *version);
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

    /// It, and the end of the object that the cache had under the name before the request was sent: that isn't there any more,
    /// whatever the answer says of another.
    fn of(&self, known: Option<&str>) -> Vec<Self> {
        let Arrival::Gone { uid, version, .. } = &self.arrival else { return vec![self.clone()] };
        let known =
            known.filter(|known| known != uid).map(|known| Self::gone(self.key.clone(), Some(known.into()), None));
        let itself = Some(self.clone()).filter(|_| !uid.is_empty() || version.is_some());
        itself.into_iter().chain(known).collect()
    }

    /// It, if the object may be one that the cache doesn't show: then it won't see its versions, but may see it go.
    fn unseen(&self) -> Option<Self> {
        match &self.arrival {
            Arrival::Gone { uid, .. } => Some(Self::gone(self.key.clone(), Some(uid.clone()), None)),
            _ => None,
        }
    }
}

/// What the answer says of the objects, and the labels if it is of one: none, if nothing was written, and `None` if that
/// can't be told.
fn effects(call: &Call, answer: &Result<Answer, ClientError>) -> Option<(Vec<Effect>, Labels)> {
    match (call.operation(), answer) {
        (Operation::Delete, Err(error)) if error.is_not_found() => {
            Some((vec![Effect::gone(call.key().clone(), call.uid().map(Into::into), call.version())], None))
        }
        (_, Err(error)) if error.is_uncertain() => None,
        (_, Err(_)) => Some((Vec::new(), None)),
        (verb, Ok(answer)) => {
            let Told { metadata, details, items } = serde_json::from_str(&answer.text).ok()?;
            let version = metadata.version();
            let effects = match verb {
                Operation::Delete => {
                    let uid = metadata.uid.or(details.uid).or(call.uid().map(Into::into));
                    vec![Effect::gone(call.key().clone(), uid, version.or(call.version()))]
                }
                Operation::DeleteCollection => {
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
    namespace: Option<String>,
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
