//! One kind's part of the cache: its store, what its feeds have seen, and who wants to hear of changes.

use std::{
    any::{Any, TypeId},
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use kube::core::Selector;
use kube_runtime::watcher::Event;
use parking_lot::RwLock;
use tokio::sync::watch;
use tracing::error;

use super::{cause::Cause, decode::Decoded, feed::Feed, reader::Reader, store::Store};
use crate::{
    client::{Client, ClientError},
    object::{KindName, Object, ObjectKey, version_of},
    predicate::Change,
};

/// A change of an object, as handlers get it.
pub(crate) struct Delta<K> {
    old: Option<Arc<K>>,
    new: Option<Arc<K>>,
    /// It comes from the first list: nothing has happened, we only learn what is there.
    pub(crate) initial: bool,
}

impl<K> Delta<K> {
    pub(crate) fn change(&self) -> Option<Change<'_, K>> {
        match (self.old.as_deref(), self.new.as_deref()) {
            (None, Some(new)) => Some(Change::Added(new)),
            (Some(old), Some(new)) => Some(Change::Updated { old, new }),
            (Some(old), None) => Some(Change::Deleted(old)),
            (None, None) => None,
        }
    }
}

impl<K: Object> Delta<K> {
    /// Calls `tell` with what has changed.
    pub(crate) fn tell(&self, change: Change<'_, K>, tell: impl FnOnce(&Cause<'_>)) {
        let states = || Some((serde_json::to_value(change.old()?).ok()?, serde_json::to_value(change.object()).ok()?));
        tell(&Cause {
            kind: &KindName::of::<K>(),
            object: &ObjectKey::of(change.object()),
            change: change.change_type(),
            initial: self.initial,
            states: &states,
        });
    }
}

/// What a reconcile's write must look like in the cache before the key's next run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The cache has seen this version, or a later one.
    Version(u64),
    /// The object of this key and UID is gone, or is being deleted.
    Gone { key: ObjectKey, uid: String },
}

/// A [`Kind`] of any type.
pub(crate) trait AnyKind: Send + Sync {
    fn name(&self) -> &KindName;

    /// Whether every feed has had its first complete list.
    fn is_synced(&self) -> bool;

    /// What keeps a feed from working at present.
    fn failure(&self) -> Option<String>;

    /// Changes whenever the kind's state of synchronisation may have.
    fn synced(&self) -> watch::Receiver<bool>;

    /// Notes a write of ours, so that a list that starts later is known to contain it.
    fn wrote(&self, namespace: Option<&str>, version: u64);

    /// Whether a write into that namespace is visible; also true where the cache doesn't look.
    fn has_arrived(&self, namespace: Option<&str>, arrival: &Arrival) -> bool;

    /// Calls `listener` after every event that was taken in.
    fn on_advance(&self, listener: Listener);

    /// A [`Reader`] of the cache in which these namespaces are as the API server has them now.
    fn live_view(self: Arc<Self>, api: Client, namespaces: Vec<Option<String>>) -> LiveRead;

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

type LiveRead = BoxFuture<'static, Result<LiveView, ClientError>>;

/// What a live read gave.
pub(crate) struct LiveView {
    /// A [`Reader`] of the kind.
    pub(crate) reader: Arc<dyn Any + Send + Sync>,
    /// What the cache must show before it is as new.
    pub(crate) arrivals: Vec<(Option<String>, Arrival)>,
}

type Handler<K> = Arc<dyn Fn(&Delta<K>) + Send + Sync>;
pub(crate) type Listener = Arc<dyn Fn() + Send + Sync>;

/// What the cache knows of one kind.
pub(crate) struct Kind<K> {
    name: KindName,
    state: RwLock<State<K>>,
    handlers: RwLock<Vec<Handler<K>>>,
    listeners: RwLock<Vec<Listener>>,
    synced: watch::Sender<bool>,
}

struct State<K> {
    store: Store<K>,
    /// One per watched namespace, or one for all.
    feeds: Vec<Feed>,
}

impl<K: Object> Kind<K> {
    /// A kind that is watched in these namespaces, or everywhere if there are none or it has no namespaces.
    pub(crate) fn new(namespaces: &BTreeSet<String>) -> Self {
        let feeds = if namespaces.is_empty() || !K::is_namespaced() {
            vec![Feed::new(None)]
        } else {
            namespaces.iter().map(|namespace| Feed::new(Some(namespace.clone()))).collect()
        };
        Self {
            name: KindName::of::<K>(),
            state: RwLock::new(State { store: Store::new(), feeds }),
            handlers: RwLock::default(),
            listeners: RwLock::default(),
            synced: watch::Sender::new(false),
        }
    }

    pub(crate) fn id() -> TypeId {
        TypeId::of::<K>()
    }

    /// The namespaces of the feeds, in order.
    pub(super) fn scopes(&self) -> Vec<Option<String>> {
        self.state.read().feeds.iter().map(|feed| feed.scope().map(str::to_owned)).collect()
    }

    /// Calls `handler` with every change from now on, in order, from the task that reads the feed.
    pub(crate) fn on_change(&self, handler: impl Fn(&Delta<K>) + Send + Sync + 'static) {
        self.handlers.write().push(Arc::new(handler));
    }

    pub(crate) fn index(&self, name: &'static str, extract: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        self.state.write().store.index(name, Arc::new(extract));
    }

    /// Reads the store. Keep it short: the feed waits.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Store<K>) -> T) -> T {
        read(&self.state.read().store)
    }

    /// Takes in what a feed has read, and tells all who want to know. Returns why an object could not be decoded.
    pub(super) fn take(&self, feed: usize, event: Event<Decoded<K>>) -> Result<(), Undecodable> {
        let mut deltas = Vec::new();
        let (taken, synced) = {
            let State { store, feeds } = &mut *self.state.write();
            let Some(feed) = feeds.get_mut(feed) else { return Ok(()) };
            let taken = feed.take(store, event, |old, new, initial| deltas.push(Delta { old, new, initial }));
            (taken, feeds.iter().all(Feed::is_synced))
        };
        for handler in self.handlers.read().iter() {
            for delta in &deltas {
                // Predicates and mappers are an operator's code: a panic in one must not end the watch.
                if catch_unwind(AssertUnwindSafe(|| handler(delta))).is_err() {
                    error!(kind = %self.name, "a predicate or mapper panicked: a change has woken no one");
                }
            }
        }
        for listener in self.listeners.read().iter() {
            listener();
        }
        self.synced.send_if_modified(|known| std::mem::replace(known, synced) != synced);
        taken
    }

    /// What the cache must come to show to be as new as this list: its newest object, and the absence of what it lacks.
    fn newer_than_cache(&self, namespace: Option<&str>, listed: &[Decoded<K>]) -> Vec<Arrival> {
        let newest = listed.iter().filter_map(version_of).max().map(Arrival::Version);
        let keys = listed.iter().map(ObjectKey::of).collect::<BTreeSet<_>>();
        self.read(|store| {
            let gone = store.within(namespace).filter(|(key, _)| !keys.contains(key));
            let gone = gone.map(|(key, object)| Arrival::Gone {
                key: key.clone(),
                uid: object.meta().uid.clone().unwrap_or_default(),
            });
            newest.into_iter().chain(gone).collect()
        })
    }

    /// Notes that a feed can't get on, and why.
    pub(super) fn fail(&self, feed: usize, why: String) {
        if let Some(feed) = self.state.write().feeds.get_mut(feed) {
            feed.fail(why);
        }
    }
}

/// An object that is on the server, but isn't what our type says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Undecodable {
    pub(super) key: ObjectKey,
    pub(super) why: String,
}

impl<K: Object> AnyKind for Kind<K> {
    fn name(&self) -> &KindName {
        &self.name
    }

    fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    fn failure(&self) -> Option<String> {
        self.state.read().feeds.iter().find_map(|feed| feed.failure().map(str::to_owned))
    }

    fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    fn wrote(&self, namespace: Option<&str>, version: u64) {
        for feed in self.state.write().feeds.iter_mut().filter(|feed| feed.covers(namespace)) {
            feed.wrote(version);
        }
    }

    fn has_arrived(&self, namespace: Option<&str>, arrival: &Arrival) -> bool {
        let state = self.state.read();
        let Some(feed) = state.feeds.iter().find(|feed| feed.covers(namespace)) else { return true };
        match arrival {
            Arrival::Version(version) => feed.observed() >= *version,
            Arrival::Gone { key, uid } => state.store.get(key).is_none_or(|object| {
                object.meta().uid.as_deref() != Some(uid) || object.meta().deletion_timestamp.is_some()
            }),
        }
    }

    fn on_advance(&self, listener: Listener) {
        self.listeners.write().push(listener);
    }

    fn live_view(self: Arc<Self>, api: Client, namespaces: Vec<Option<String>>) -> LiveRead {
        async move {
            let (mut live, mut arrivals) = (Vec::new(), Vec::new());
            for namespace in namespaces {
                let listed: Vec<Decoded<K>> = api.list_as::<K, _>(namespace.as_deref(), &Selector::default()).await?;
                let seen = self.newer_than_cache(namespace.as_deref(), &listed);
                arrivals.extend(seen.into_iter().map(|arrival| (namespace.clone(), arrival)));
                live.push((namespace, listed.into_iter().filter_map(|listed| listed.object.ok()).collect()));
            }
            let reader: Arc<dyn Any + Send + Sync> = Arc::new(Reader::with_live(&self, live));
            Ok(LiveView { reader, arrivals })
        }
        .boxed()
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
