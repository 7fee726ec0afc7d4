//! Tracks the writes of a reconcile, and what it reads past the cache, for the read-your-writes barrier.
//!
//! The tracker observes all requests of a reconcile's client. The key's next run waits until the cache shows their
//! effects. A live read that returns a newer state than the cache is tracked like a write. So a cache that is behind is
//! made to list again, and no run sees an older state than an earlier run of the same key.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde::Deserialize;

use super::services::Services;
use crate::{
    cache::{ExpectedState, Kind, ObjectSet},
    client::{Call, Client, ClientError, ObservedRequest, Operation, ParsedResponse, RequestObserver},
    object::{KindName, ObjectKey},
    trace::{RunRecorder, Sent},
};

/// A state that the cache must show before the key's next reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expectation {
    pub(crate) kind: Arc<KindName>,
    /// The namespace of the objects; the kind may be watched in several.
    pub(crate) namespace: Option<String>,
    /// The expected state. `None` if a write had no response: only a live read can determine whether it took effect.
    pub(crate) state: Option<ExpectedState>,
    /// The objects to read live if the cache doesn't show the state in time.
    pub(crate) objects: ObjectSet,
}

/// The expectations of one run. Clones share them; they outlive a run that is aborted.
#[derive(Clone)]
pub(crate) struct WriteTracker {
    services: Arc<Services>,
    recorder: RunRecorder,
    entries: Arc<Mutex<Entries>>,
}

#[derive(Default)]
struct Entries {
    next: u64,
    writes: BTreeMap<u64, Expectation>,
    /// The newest version that live reads returned in each kind and namespace, where it is newer than the cache.
    reads: BTreeMap<(Arc<KindName>, Option<String>), (u64, ObjectSet)>,
    /// The versions that the run's own writes returned, if the run is traced.
    versions: BTreeMap<(Arc<KindName>, ObjectKey), u64>,
}

/// A request that was sent.
struct PendingRequest<'a> {
    tracker: &'a WriteTracker,
    targets: Vec<Target>,
    /// The object's version before the write, if it is known.
    before: Option<u64>,
    sent: Sent,
}

/// An informer of the requested kind.
struct Target {
    kind: Arc<Kind>,
    /// The number of the expectation, if the request is a write.
    number: Option<u64>,
    /// The UID under the requested name in the cache, before the request was sent.
    cached_uid: Option<String>,
}

impl WriteTracker {
    /// Returns a tracker of requests for the kinds that the controller reads from the cache. The recorder records all
    /// requests, for the run's trace.
    pub(crate) fn new(services: Arc<Services>, recorder: RunRecorder) -> Self {
        Self { services, recorder, entries: Arc::default() }
    }

    /// Returns a client whose writes are tracked, and whose requests are in the run's trace and have spans.
    pub(crate) fn observing(&self, client: Client) -> Client {
        #[cfg(feature = "opentelemetry")]
        let client = client.observed(Arc::new(crate::telemetry::RequestSpans));
        client.observed(Arc::new(self.clone()))
    }

    /// Returns the record for the run's trace.
    pub(crate) fn recorder(&self) -> &RunRecorder {
        &self.recorder
    }

    /// Returns everything that the key's next run must see.
    pub(crate) fn expectations(&self) -> Vec<Expectation> {
        let entries = self.entries.lock();
        let reads = entries.reads.iter().map(|((kind, namespace), (version, objects))| Expectation {
            kind: kind.clone(),
            namespace: namespace.clone(),
            state: Some(ExpectedState::Version(*version)),
            objects: objects.clone(),
        });
        entries.writes.values().cloned().chain(reads).collect()
    }

    /// Returns the latest known version of the object, from the cache or the run's own last write. For the trace alone.
    fn version_before(&self, call: &Call, kinds: &[Arc<Kind>]) -> Option<u64> {
        if !self.recorder.is_on()
            || !matches!(call.operation(), Operation::Update | Operation::Patch | Operation::Apply)
        {
            return None;
        }
        let own =
            |kind: &Arc<Kind>| self.entries.lock().versions.get(&(kind.name().clone(), call.key().clone())).copied();
        let written = kinds.iter().filter_map(own);
        let cached = kinds.iter().filter_map(|kind| kind.version_of(call.key()));
        written.chain(cached).max()
    }

    fn expect(&self, kind: &Kind, namespace: Option<&str>, state: Option<ExpectedState>, objects: ObjectSet) -> u64 {
        let mut entries = self.entries.lock();
        let number = entries.next;
        entries.next += 1;
        let kind = kind.name().clone();
        entries.writes.insert(number, Expectation { kind, namespace: namespace.map(Into::into), state, objects });
        number
    }

    /// Adds an object that a live read returned, unless the cache is as new or doesn't select the object.
    fn expect_live(&self, kind: &Kind, metadata: &Metadata, call: &Call) {
        let namespace = metadata.namespace.as_deref().or(call.namespace());
        let Some(version) = metadata.version() else { return };
        let is_shown = kind.shows(namespace, &ExpectedState::Version(version));
        if is_shown || !kind.selects(namespace, metadata.labels.as_ref()) {
            return;
        }
        kind.note_version(namespace, version);
        let name = metadata.name.as_deref().unwrap_or(call.key().name());
        let key =
            namespace.map_or_else(|| ObjectKey::cluster(name), |namespace| ObjectKey::namespaced(namespace, name));
        let object = ObjectSet::one(key);
        let mut entries = self.entries.lock();
        let known = entries.reads.entry((kind.name().clone(), namespace.map(Into::into)));
        let (newest, objects) = known.or_insert_with(|| (version, object.clone()));
        *newest = version.max(*newest);
        objects.merge(&object);
    }
}

impl RequestObserver for WriteTracker {
    /// Adds an expectation for a write before it is sent: it stays if the answer is lost or the run is aborted.
    fn begin<'a>(&'a self, call: &Call, request: &http::Request<Vec<u8>>) -> Box<dyn ObservedRequest + 'a> {
        let kinds = match call.is_dry_run() {
            true => Vec::new(),
            false => self.services.informers_of(call.kind(), call.namespace()),
        };
        let before = self.version_before(call, &kinds);
        let objects = || call.name().map_or(ObjectSet::All, |_| ObjectSet::one(call.key().clone()));
        let is_by_name = matches!(call.operation(), Operation::Get | Operation::Delete) && call.subresource().is_none();
        let target = |kind: Arc<Kind>| {
            let number = call.changes_something().then(|| self.expect(&kind, call.namespace(), None, objects()));
            let cached_uid = if is_by_name { kind.uid_of(call.key()) } else { None };
            Target { kind, number, cached_uid }
        };
        let targets = kinds.into_iter().map(target).collect();
        let sent = self.recorder.sent(call, request.uri().query());
        Box::new(PendingRequest { tracker: self, targets, before, sent })
    }
}

impl ObservedRequest for PendingRequest<'_> {
    fn answered(self: Box<Self>, call: &Call, answer: &Result<ParsedResponse, ClientError>) {
        if self.targets.is_empty() {
            return self.sent.answered(call, answer, None);
        }
        if !call.operation().is_write() {
            self.targets.iter().for_each(|target| self.read(target, call, answer));
            return self.sent.answered(call, answer, None);
        }
        let effects = Effects::of(call, answer);
        let version = effects.as_ref().and_then(Effects::version);
        self.sent.answered(call, answer, self.before.zip(version).map(|(before, after)| before < after));
        self.remember(call, version);
        // Without known effects the expectations stay as they are.
        if let Some(Effects { objects, labels }) = effects {
            for target in &self.targets {
                let is_selected = target.kind.selects(call.namespace(), labels.as_ref());
                let effects = objects.iter().flat_map(|effect| effect.with_cached(target.cached_uid.as_deref()));
                let effects = effects.filter_map(|effect| if is_selected { Some(effect) } else { effect.unselected() });
                self.settle(target, effects.collect());
            }
        }
    }
}

impl PendingRequest<'_> {
    /// Tracks the answer to a live read for one informer.
    fn read(
        &self,
        Target { kind, cached_uid, .. }: &Target,
        call: &Call,
        answer: &Result<ParsedResponse, ClientError>,
    ) {
        match (answer, cached_uid) {
            (Ok(answer), _) => {
                let Ok(Response { metadata, items, .. }) = answer.read() else { return };
                match items {
                    Some(items) => {
                        items.iter().for_each(|item| self.tracker.expect_live(kind, &item.metadata, call));
                    }
                    None => self.tracker.expect_live(kind, &metadata, call),
                }
            }
            (Err(error), Some(uid)) if error.is_not_found() => {
                let gone = ExpectedState::Gone { key: call.key().clone(), uid: uid.clone(), version: None };
                self.tracker.expect(kind, call.namespace(), Some(gone), ObjectSet::one(call.key().clone()));
            }
            _ => {}
        }
    }

    fn remember(&self, call: &Call, version: Option<u64>) {
        let Some(version) = version.filter(|_| self.tracker.recorder.is_on()) else { return };
        let mut entries = self.tracker.entries.lock();
        for Target { kind, .. } in &self.targets {
            entries.versions.insert((kind.name().clone(), call.key().clone()), version);
        }
    }

    /// Replaces the expectation of one informer by the effects of the write: there may be several, since one request
    /// can delete many objects.
    fn settle(&self, Target { kind, number, .. }: &Target, effects: Vec<Effect>) {
        let mut entries = self.tracker.entries.lock();
        let Some(pending) = number.and_then(|number| entries.writes.remove(&number)) else { return };
        for Effect { key, state } in effects {
            if let ExpectedState::Version(version) | ExpectedState::Gone { version: Some(version), .. } = &state {
                kind.note_version(pending.namespace.as_deref(), *version);
            }
            let number = entries.next;
            entries.next += 1;
            let expectation = Expectation { state: Some(state), objects: ObjectSet::one(key), ..pending.clone() };
            entries.writes.insert(number, expectation);
        }
    }
}

/// The effects of a write according to its response.
struct Effects {
    /// Empty if nothing was written.
    objects: Vec<Effect>,
    /// The object's labels, if the answer is an object.
    labels: Labels,
}

/// The effect of a write on one object.
#[derive(Clone)]
struct Effect {
    key: ObjectKey,
    state: ExpectedState,
}

impl Effects {
    /// Returns the effects of a write, or `None` if they are unknown.
    fn of(call: &Call, answer: &Result<ParsedResponse, ClientError>) -> Option<Self> {
        let answer = match answer {
            Err(error) if call.operation() == Operation::Delete && error.is_not_found() => {
                let gone = Effect::gone(call.key().clone(), call.uid().map(Into::into), call.version());
                return Some(Self { objects: vec![gone], labels: None });
            }
            Err(error) if error.is_uncertain() => return None,
            Err(_) => return Some(Self { objects: Vec::new(), labels: None }),
            Ok(answer) => answer,
        };
        let Response { metadata, details, items } = answer.read().ok()?;
        let version = metadata.version();
        let objects = match call.operation() {
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
            // The answer to a subresource may have no version, as that to an eviction.
            _ => {
                let key = call.key().sibling(metadata.name.as_deref().unwrap_or(call.key().name()));
                vec![Effect { key, state: ExpectedState::Version(version?) }]
            }
        };
        Some(Self { objects, labels: metadata.labels })
    }

    /// Returns the version of the written object, if there is a single one.
    fn version(&self) -> Option<u64> {
        match self.objects.as_slice() {
            [Effect { state: ExpectedState::Version(version), .. }] => Some(*version),
            _ => None,
        }
    }
}

impl Effect {
    fn gone(key: ObjectKey, uid: Option<String>, version: Option<u64>) -> Self {
        let state = ExpectedState::Gone { key: key.clone(), uid: uid.unwrap_or_default(), version };
        Self { key, state }
    }

    /// Returns a deletion together with the end of the object that the cache had under the name before the request: the
    /// answer shows that it no longer exists, even if the answer names no UID or another one.
    fn with_cached(&self, cached_uid: Option<&str>) -> Vec<Self> {
        let ExpectedState::Gone { uid, version, .. } = &self.state else { return vec![self.clone()] };
        let cached = cached_uid.filter(|cached| cached != uid);
        let cached = cached.map(|cached| Self::gone(self.key.clone(), Some(cached.into()), None));
        let itself = Some(self.clone()).filter(|_| !uid.is_empty() || version.is_some());
        itself.into_iter().chain(cached).collect()
    }

    /// Returns the effect on a cache that may not select the object: its versions don't arrive there, but its deletion
    /// may.
    fn unselected(&self) -> Option<Self> {
        match &self.state {
            ExpectedState::Gone { uid, .. } => Some(Self::gone(self.key.clone(), Some(uid.clone()), None)),
            _ => None,
        }
    }
}

/// The part of an answer that shows its effects: an object, a `Status` or a list.
#[derive(Deserialize)]
struct Response {
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
