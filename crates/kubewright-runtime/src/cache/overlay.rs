//! Objects read live, laid over the cache for a run that must not see what the cache still shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::{
    expected::ExpectedState,
    store::{Row, Store},
};
use crate::object::ObjectKey;

/// Objects that were read live: whole namespaces (`None`: all of them) and single objects. Nothing of the cache is
/// copied.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pub(super) namespaces: Vec<(Option<String>, Arc<LiveList>)>,
    pub(super) keys: BTreeSet<ObjectKey>,
    /// The objects among `keys` that exist.
    pub(super) objects: Store,
}

/// A namespace as the API server listed it.
#[derive(Debug)]
pub(super) struct LiveList {
    pub(super) store: Store,
    /// The state at which the cache is as new as the list.
    pub(super) expected: Vec<ExpectedState>,
}

impl Overlay {
    /// Returns whether the overlay replaces what the cache has for this key.
    fn covers(&self, key: &ObjectKey) -> bool {
        self.keys.contains(key) || self.of(key.namespace()).is_some()
    }

    /// Returns the objects of this namespace, if it was listed live.
    fn of(&self, namespace: Option<&str>) -> Option<&Store> {
        let covers = |scope: &Option<String>| scope.is_none() || scope.as_deref() == namespace;
        self.namespaces.iter().find(|(scope, _)| covers(scope)).map(|(_, listed)| &listed.store)
    }

    /// Returns the object with this key; the outer `None` means that the overlay doesn't cover it.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Option<Row>> {
        let store = self.of(key.namespace()).or_else(|| self.keys.contains(key).then_some(&self.objects));
        store.map(|store| store.get(key).cloned())
    }

    /// Returns the result of a query over cache and overlay, given its result over the cache.
    pub(super) fn merge(&self, cached: Vec<Row>, query: impl Fn(&Store) -> Vec<Row>) -> Vec<Row> {
        let cached = cached.into_iter().filter(|row| !self.covers(&row.key));
        let listed = self.namespaces.iter().flat_map(|(_, listed)| query(&listed.store));
        let mut rows = cached.chain(listed).chain(query(&self.objects)).collect::<Vec<_>>();
        rows.sort();
        rows.dedup();
        rows
    }
}

/// The live lists of one kind. Runs that wait for a list of the same namespace share the next one.
#[derive(Default)]
pub(super) struct LiveLists {
    /// Counts calls and lists, to determine their order.
    sequence: AtomicU64,
    last: Mutex<BTreeMap<Option<String>, Arc<AsyncMutex<LastList>>>>,
}

/// The most recent list, as long as a run uses it, and its number in the sequence when it was requested.
pub(super) type LastList = (u64, Weak<LiveList>);

impl LiveLists {
    /// Returns the next number of the sequence.
    pub(super) fn next(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the lock under which a namespace is listed, by one run at a time.
    pub(super) fn lock_of(&self, namespace: Option<&str>) -> Arc<AsyncMutex<LastList>> {
        let mut last = self.last.lock();
        last.retain(|_, list| {
            Arc::strong_count(list) > 1 || list.try_lock().is_ok_and(|last| last.1.strong_count() > 0)
        });
        last.entry(namespace.map(Into::into)).or_default().clone()
    }
}
