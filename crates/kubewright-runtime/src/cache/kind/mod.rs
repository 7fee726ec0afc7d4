//! One kind's part of the cache: its store, what its feeds have seen, and who wants to hear of changes.

use std::{
    any::{TypeId, type_name},
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kubewright_packed::{self as packed, Dictionary, Document, Identity, RawObject, ReadError, ReadMarks};
use parking_lot::RwLock;
use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tracing::{error, warn};

use super::{
    Unsynced,
    delta::{Cause, Changes, Delta, Step},
    feed::{Doubt, Feed},
    fresh::{Fresh, Typed, Types},
    list_watch::Event,
    live::Lists,
    options::{NamespaceOptions, Plan},
    store::{Entry, Row, Store, Version},
};
use crate::{
    client::AnyObject,
    object::{KindName, ObjectKey},
};

/// What a reconcile's write must look like in the cache before the key's next run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The cache has seen this version, or a later one.
    Version(u64),
    /// The object of this key and UID, which was seen at this version if there is one, is gone, or is being deleted.
    Gone { key: ObjectKey, uid: String, version: Option<u64> },
    /// The object of this key and UID, which a list of this version lacked, is gone, or is newer than the list: one that no longer
    /// matched a selector may match it again.
    Absent { key: ObjectKey, uid: String, list: u64 },
}

pub(crate) type Handler = Arc<dyn Fn(&Delta<'_>) + Send + Sync>;
pub(crate) type Listener = Arc<dyn Fn() + Send + Sync>;

/// What the cache knows of one kind: one copy, for all types that read it.
///
/// Each object is read as each of them when it arrives, and what none of them reads is not kept. So a kind that is only
/// seen through [views](crate::view) costs what they name.
pub(crate) struct Kind {
    name: Arc<KindName>,
    api_version: String,
    plan: Plan,
    types: RwLock<Vec<Type>>,
    indexes: RwLock<Vec<Index>>,
    dictionary: Arc<Dictionary>,
    state: RwLock<State>,
    handlers: RwLock<Vec<Handler>>,
    listeners: RwLock<Vec<Listener>>,
    synced: watch::Sender<bool>,
    fresh: Fresh,
    /// One per feed: it is to begin anew.
    relists: Box<[Notify]>,
    lists: Lists,
    /// Whether it isn't watched any more.
    is_over: AtomicBool,
}

struct State {
    store: Store,
    /// One per watched namespace, or one for all.
    feeds: Vec<Feed>,
    /// How many types were declared after the first event.
    edition: u64,
}

/// A type that objects of the kind are read as.
#[derive(Clone, Copy)]
struct Type {
    id: TypeId,
    metadata_only: bool,
    decode: Decode,
    /// Objects show what it reads since the lists of this [edition](State::edition).
    since: u64,
}

type Decode = fn(&Document<'_>, &Dictionary) -> Result<Arc<Typed>, String>;

impl Type {
    fn of<T: AnyObject>() -> Self {
        let decode = |document: &Document<'_>, dictionary: &Dictionary| {
            decode::<T>(document, dictionary).map(|object| Arc::new(object) as Arc<Typed>)
        };
        Self { id: TypeId::of::<T>(), metadata_only: T::metadata_api(), decode, since: 0 }
    }
}

/// A declared index: where an object is found by the values that an operator's function gives.
#[derive(Clone)]
struct Index {
    name: &'static str,
    of: TypeId,
    values: Arc<Values>,
}

type Values = dyn Fn(&Typed) -> Vec<String> + Send + Sync;

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Kind {
    pub(super) fn new(name: KindName, plan: Plan) -> Self {
        let feeds = plan.scopes.iter().map(|(scope, _)| Feed::new(scope.clone())).collect::<Vec<_>>();
        let relists = feeds.iter().map(|_| Notify::new()).collect();
        Self {
            api_version: name.api_version(),
            name: Arc::new(name),
            plan,
            types: RwLock::default(),
            indexes: RwLock::default(),
            dictionary: Arc::default(),
            state: RwLock::new(State { store: Store::default(), feeds, edition: 0 }),
            handlers: RwLock::default(),
            listeners: RwLock::default(),
            synced: watch::Sender::new(false),
            fresh: Fresh::default(),
            relists,
            lists: Lists::default(),
            is_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn name(&self) -> &Arc<KindName> {
        &self.name
    }

    /// After how long all objects are told again.
    pub(super) fn resync_period(&self) -> Option<Duration> {
        self.plan.resync
    }

    /// Where the feeds look, in their order.
    pub(super) fn scopes(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.plan.scopes.iter().map(|(scope, _)| scope.as_deref())
    }

    /// Where the feed looks that shows a namespace.
    pub(crate) fn scope_of<'a>(&'a self, namespace: Option<&'a str>) -> Option<&'a str> {
        let covers = |scope: &Option<&str>| scope.is_none() || *scope == namespace;
        self.scopes().find(covers).unwrap_or(namespace)
    }

    /// How objects of a namespace are kept, if the cache looks there.
    fn options_in(&self, namespace: Option<&str>) -> Option<&NamespaceOptions> {
        let covers = |scope: &Option<String>| scope.is_none() || scope.as_deref() == namespace;
        self.plan.scopes.iter().find(|(scope, _)| covers(scope)).map(|(_, options)| options)
    }

    /// Whether an object of that namespace with these labels is known to be one that the cache will show.
    pub(crate) fn shows(&self, namespace: Option<&str>, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.options_in(namespace).is_some_and(|options| options.shows(labels))
    }

    /// Selects what the cache holds of a namespace, or of a feed's scope.
    pub(super) fn selection(&self, namespace: Option<&str>) -> ListParams {
        self.options_in(namespace).map(NamespaceOptions::params).unwrap_or_default()
    }

    /// Keeps what `T` reads. Call it before the first event.
    pub(crate) fn declare<T: AnyObject>(&self) {
        let mut types = self.types.write();
        if types.iter().all(|known| known.id != TypeId::of::<T>()) {
            types.push(Type::of::<T>());
        }
    }

    /// Keeps what `T` reads, also of what is there already: for that it lists anew, unless it has. Gives the edition from
    /// which on objects [show](Kind::is_filled) it.
    pub(crate) fn declare_late<T: AnyObject>(&self) -> u64 {
        let State { feeds, edition, .. } = &mut *self.state.write();
        let mut types = self.types.write();
        if let Some(known) = types.iter().find(|known| known.id == TypeId::of::<T>()) {
            return known.since;
        }
        *edition += 1;
        types.push(Type { since: *edition, ..Type::of::<T>() });
        for (number, feed) in feeds.iter_mut().enumerate() {
            feed.renew(*edition);
            self.relist(number);
        }
        *edition
    }

    /// Whether there are all objects, with what the types of this edition read.
    pub(crate) fn is_filled(&self, edition: u64) -> bool {
        self.state.read().feeds.iter().all(|feed| feed.is_synced() && feed.edition() >= edition)
    }

    /// Whether nothing but metadata is read.
    pub(super) fn is_metadata_only(&self) -> bool {
        self.types.read().iter().all(|known| known.metadata_only)
    }

    /// Calls `handler` with every change from now on, in order, from the task that reads the feed.
    pub(crate) fn on_change(&self, handler: impl Fn(&Delta<'_>) + Send + Sync + 'static) -> Handler {
        let handler: Handler = Arc::new(handler);
        self.handlers.write().push(handler.clone());
        handler
    }

    /// Calls `listener` after every event that was taken in.
    pub(crate) fn on_advance(&self, listener: Listener) {
        self.listeners.write().push(listener);
    }

    /// Calls neither of these any more. Not from within them.
    pub(crate) fn off(&self, handler: &Handler, listener: &Listener) {
        self.handlers.write().retain(|known| !Arc::ptr_eq(known, handler));
        self.listeners.write().retain(|known| !Arc::ptr_eq(known, listener));
    }

    /// Adds an index, or replaces the one of that name. Call it before the first event.
    pub(crate) fn index<T: AnyObject>(
        &self,
        name: &'static str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) {
        self.declare::<T>();
        let values = move |object: &Typed| object.downcast_ref().map(&values).unwrap_or_default();
        let index = Index { name, of: TypeId::of::<T>(), values: Arc::new(values) };
        let mut indexes = self.indexes.write();
        match indexes.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = index,
            None => indexes.push(index),
        }
    }

    /// The number of an index in the store.
    pub(super) fn index_number(&self, name: &str) -> Option<usize> {
        self.indexes.read().iter().position(|index| index.name == name)
    }

    /// Reads the store. Keep it short: the feed waits.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Store) -> T) -> T {
        read(&self.state.read().store)
    }

    /// The UID of an object, as the cache has it.
    pub(crate) fn uid_of(&self, key: &ObjectKey) -> Option<String> {
        self.read(|store| store.get(key)?.uid.as_ref().map(ToString::to_string))
    }

    /// The version of an object, as the cache has it.
    pub(crate) fn version_of(&self, key: &ObjectKey) -> Option<u64> {
        self.read(|store| store.get(key)?.version.number())
    }

    /// Takes in what a feed has read, and tells all who want to know. Returns why an object could not be decoded.
    pub(super) fn take(&self, number: usize, event: Event<RawObject>) -> Result<(), Undecodable> {
        // Nobody else changes what this feed has put into the store, so readers needn't wait while its object is decoded.
        let decoded = Cell::new(self.decoded(number, &event));
        let intake = |key, draft: &RawObject| decoded.take().unwrap_or_else(|| self.intake(key, draft));
        let mut steps = Vec::new();
        let (taken, synced, doubt) = {
            let State { store, feeds, .. } = &mut *self.state.write();
            let Some(feed) = feeds.get_mut(number) else { return Ok(()) };
            let taken = feed.take(store, event, &intake, |step| steps.push(step));
            let doubt = feed.doubt();
            (taken, feeds.iter().all(Feed::is_synced), doubt)
        };
        match doubt {
            None => {}
            Some(Doubt::Suspicion) => self.relist(number),
            Some(Doubt::Certainty) => warn!(
                kind = %self.name,
                "the API server shows an older state than before, as after a restore: it is believed"
            ),
        }
        for step in &steps {
            if let (Some(row), Cause::Event) = (&step.new, step.cause) {
                self.fresh.keep(row, &step.types);
            }
        }
        self.tell(&steps);
        for listener in self.listeners.read().iter() {
            listener();
        }
        // Once it is, it stays so: another feed that looked earlier may come here later.
        if synced {
            self.synced.send_if_modified(|known| !std::mem::replace(known, true));
        }
        taken
    }

    /// What is to be kept of an event's object, if it will be asked for.
    fn decoded(&self, feed: usize, event: &Event<RawObject>) -> Option<Result<(Row, Types), Undecodable>> {
        let (Event::Apply(draft) | Event::InitApply(draft) | Event::Delete(draft)) = event else { return None };
        let key = {
            let State { store, feeds, .. } = &*self.state.read();
            feeds.get(feed)?.wants(store, event)?
        };
        Some(self.intake(key, draft))
    }

    /// The objects of a feed's scope, in the order of their keys.
    pub(super) fn all_of(&self, feed: usize) -> Vec<ObjectKey> {
        let State { store, feeds, .. } = &*self.state.read();
        let rows = feeds.get(feed).into_iter().flat_map(|feed| store.within(feed.scope()));
        rows.map(|row| row.key.clone()).collect()
    }

    /// Tells of these objects again, as of an update that changed nothing, unless they are gone.
    pub(super) fn resync(&self, keys: &[ObjectKey]) {
        let steps = self.read(|store| {
            let rows = keys.iter().filter_map(|key| store.get(key));
            let step = |row: &Row| Step::new(Some(row.clone()), Some(row.clone()), Types::default(), Cause::Resync);
            rows.map(step).collect::<Vec<_>>()
        });
        self.tell(&steps);
    }

    /// Whether there is something to [let go](Kind::let_go) of.
    pub(super) fn holds_more(&self) -> bool {
        self.fresh.holds_more()
    }

    /// Lets go of objects whose turn is over: it takes its time, so whoever was woken goes first.
    pub(super) fn let_go(&self) {
        self.fresh.let_go();
    }

    fn tell(&self, steps: &[Step]) {
        for handler in self.handlers.read().iter() {
            for delta in steps.iter().filter_map(|step| Delta::new(self, step)) {
                // Predicates and mappers are an operator's code: a panic in one must not end the watch.
                if catch_unwind(AssertUnwindSafe(|| handler(&delta))).is_err() {
                    error!(kind = %self.name, "a predicate or mapper panicked: a change has woken no one");
                }
            }
        }
    }

    /// Reads an object as all types that want to, and keeps what they read.
    pub(super) fn intake(&self, key: ObjectKey, draft: &RawObject) -> Result<(Row, Types), Undecodable> {
        let undecodable = |why: String| Undecodable { key: ObjectKey::of(draft), why };
        if draft.is_truncated() {
            return Err(undecodable(format!("it is nested more than {} levels deep", packed::MAX_DEPTH)));
        }
        let reshaped = self.reshaped(&key, draft).map_err(undecodable)?;
        let draft = reshaped.as_ref().unwrap_or(draft);
        let meta = &draft.metadata;
        let marks = ReadMarks::new(draft);
        let (uid, version) = (meta.uid.as_ref(), meta.resource_version.as_ref());
        let identity = self.identity(&key, uid.map(|uid| uid as _), version.map(|version| version as _));
        let document = Document::raw(draft, identity, &marks);
        let own = packed::ownership(draft, &marks);
        let types = self.types.read();
        let decoded = types.iter().map(|known| Ok((known.id, (known.decode)(&document, &self.dictionary)?)));
        let types = decoded.collect::<Result<Types, String>>().map_err(undecodable)?;
        let bytes = packed::pack(draft, &marks, key.name(), &self.dictionary);
        let entry = Entry {
            uid: meta.uid.as_deref().map(Into::into),
            version: Version::of(meta.resource_version.as_deref()),
            controller: own.controller.map(Into::into),
            is_leaving: own.is_being_deleted,
            values: self.values(&types),
            key,
        };
        Ok((Row::new(entry, &bytes), types))
    }

    /// An object as the options want it, if they want it otherwise.
    fn reshaped(&self, key: &ObjectKey, draft: &RawObject) -> Result<Option<RawObject>, String> {
        let shortened = (!self.plan.without.is_empty()).then(|| draft.without(&self.plan.without));
        let Some(transform) = self.options_in(key.namespace()).and_then(NamespaceOptions::transformation) else {
            return Ok(shortened);
        };
        let draft = shortened.as_ref().unwrap_or(draft);
        let identity = self.identity(key, None, None);
        let transform = || draft.transformed(identity, |object| transform.apply(object));
        // The function is an operator's.
        let transformed = catch_unwind(AssertUnwindSafe(transform));
        transformed.unwrap_or_else(|_| Err("the cache's transform panicked".into())).map(Some)
    }

    /// The object's values in the indexes. The functions are an operator's: if one panics, the object has none there.
    fn values(&self, decoded: &[(TypeId, Arc<Typed>)]) -> Box<[(usize, Arc<str>)]> {
        let mut values = BTreeSet::new();
        for (number, index) in self.indexes.read().iter().enumerate() {
            let Some((_, object)) = decoded.iter().find(|(id, _)| *id == index.of) else { continue };
            match catch_unwind(AssertUnwindSafe(|| (index.values)(object.as_ref()))) {
                Ok(found) => values.extend(found.into_iter().map(|value| (number, Arc::from(value)))),
                Err(_) => error!(
                    kind = %self.name, index = index.name,
                    "an index function panicked: an object is not found by it"
                ),
            }
        }
        values.into_iter().collect()
    }

    /// The object of a row as a `T`.
    pub(super) fn unpack<T: AnyObject>(&self, row: &Row) -> Option<Arc<T>> {
        if let Some(object) = self.fresh.get(row) {
            return Some(object);
        }
        decode(&self.document(row), &self.dictionary)
            .inspect_err(
                |why| error!(kind = %self.name, object = %row.key, r#type = type_name::<T>(), why, "can't unpack"),
            )
            .map(Arc::new)
            .ok()
    }

    pub(super) fn labels(&self, row: &Row) -> BTreeMap<String, String> {
        self.document(row).read::<Labelled>(&self.dictionary).unwrap_or_default().metadata.labels
    }

    pub(super) fn owners_of(&self, row: &Row) -> Vec<OwnerReference> {
        self.document(row).read::<Owned>(&self.dictionary).unwrap_or_default().metadata.owner_references
    }

    pub(super) fn changes(&self, old: &Row, new: &Row) -> Changes {
        Changes::new(old.clone(), new.clone(), self.dictionary.clone())
    }

    fn document<'a>(&'a self, row: &'a Row) -> Document<'a> {
        let uid = row.uid.as_ref().map(|uid| uid as _);
        let version = row.version.is_known().then_some(&row.version as _);
        Document::packed(row.bytes(), self.identity(&row.key, uid, version))
    }

    fn identity<'a>(
        &'a self,
        key: &'a ObjectKey,
        uid: Option<&'a dyn fmt::Display>,
        resource_version: Option<&'a dyn fmt::Display>,
    ) -> Identity<'a> {
        Identity {
            api_version: &self.api_version,
            kind: &self.name.kind,
            name: Some(key.name()),
            namespace: key.namespace(),
            uid,
            resource_version,
        }
    }

    /// Puts an object into the store, as a watch would.
    #[cfg(test)]
    pub(crate) fn put(&self, object: &serde_json::Value) {
        let draft = serde::Deserialize::deserialize(object).expect("an object");
        self.take(0, Event::Apply(draft)).expect("an object that its types can read");
    }

    /// Notes that a feed can't get on, and why.
    pub(super) fn fail(&self, feed: usize, why: String) {
        if let Some(feed) = self.state.write().feeds.get_mut(feed) {
            feed.fail(why);
        }
    }

    /// Whether every feed has had its first complete list.
    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// What keeps a feed from working at present.
    pub(crate) fn failure(&self) -> Option<String> {
        self.state.read().feeds.iter().find_map(|feed| feed.failure().map(str::to_owned))
    }

    /// Why it has not had its first complete list, if it hasn't.
    pub(super) fn unsynced(&self) -> Option<Unsynced> {
        (!self.is_synced()).then(|| self.lacking())
    }

    /// Why it isn't complete.
    pub(crate) fn lacking(&self) -> Unsynced {
        let reason = self.failure().unwrap_or_else(|| "still listing".into());
        Unsynced { kind: self.name.as_ref().clone(), reason }
    }

    /// Changes whenever the kind's state of synchronisation may have.
    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Makes a feed begin anew, with a list.
    pub(super) fn relist(&self, feed: usize) {
        self.relists.iter().skip(feed).take(1).for_each(Notify::notify_one);
    }

    /// Notes that the API server doesn't know what a feed has seen: what that begins with next is believed, whatever it is.
    pub(super) fn forget(&self, feed: usize) {
        if let Some(feed) = self.state.write().feeds.get_mut(feed) {
            feed.forget();
        }
    }

    /// Makes the feed of a namespace list anew, which then shows all that was written before.
    pub(crate) fn catch_up(&self, namespace: Option<&str>) {
        let feed = self.state.read().feeds.iter().position(|feed| feed.covers(namespace));
        feed.into_iter().for_each(|feed| self.relist(feed));
    }

    pub(super) fn lists(&self) -> &Lists {
        &self.lists
    }

    /// Returns when a feed is to begin anew.
    pub(super) async fn relist_wanted(&self, feed: usize) {
        match self.relists.get(feed) {
            Some(wanted) => wanted.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Notes that the API server has shown this version, in the answer to a write or to a live read: a list that starts later is
    /// at least as new, even if the object is gone by then.
    pub(crate) fn note_version(&self, namespace: Option<&str>, version: u64) {
        for feed in self.state.write().feeds.iter_mut().filter(|feed| feed.covers(namespace)) {
            feed.note_version(version);
        }
    }

    /// Whether the cache looks into that namespace.
    pub(crate) fn covers(&self, namespace: Option<&str>) -> bool {
        self.state.read().feeds.iter().any(|feed| feed.covers(namespace))
    }

    /// Notes that it isn't watched any more.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether nothing new will be seen of it.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether a write into that namespace is visible; also true where the cache doesn't look.
    pub(crate) fn has_arrived(&self, namespace: Option<&str>, arrival: &Arrival) -> bool {
        let state = self.state.read();
        let Some(feed) = state.feeds.iter().find(|feed| feed.covers(namespace)) else { return true };
        match arrival {
            Arrival::Version(version) => feed.observed() >= *version,
            Arrival::Gone { key, uid, version } => match state.store.get(key) {
                Some(row) if row.has_uid(uid) => row.is_leaving,
                // What the cache doesn't have may be yet to come.
                _ => version.is_none_or(|version| feed.observed() >= version),
            },
            Arrival::Absent { key, uid, list } => match state.store.get(key) {
                Some(row) if row.has_uid(uid) => row.is_leaving || row.version.number() > Some(*list),
                _ => true,
            },
        }
    }
}

/// Reads an object as a `T`. Its `Deserialize` may be an operator's own: a panic in it makes the object undecodable.
fn decode<T: AnyObject>(document: &Document<'_>, dictionary: &Dictionary) -> Result<T, String> {
    let read = || if T::metadata_api() { document.read_metadata(dictionary) } else { document.read(dictionary) };
    let read = catch_unwind(AssertUnwindSafe(read));
    read.map_err(|_| format!("{} panicked while it was read", type_name::<T>()))?
        .map_err(|error: ReadError| error.to_string())
}

#[derive(Debug, Default, Deserialize)]
struct Owned {
    metadata: OwnersOf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnersOf {
    #[serde(deserialize_with = "or_default")]
    owner_references: Vec<OwnerReference>,
}

#[derive(Debug, Default, Deserialize)]
struct Labelled {
    metadata: Labels,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
}

/// `null` as the default.
fn or_default<'de, T: Deserialize<'de> + Default, D: serde::Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// An object that is on the server, but isn't what our types say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Undecodable {
    pub(super) key: ObjectKey,
    pub(super) why: String,
}

#[cfg(test)]
mod tests;
