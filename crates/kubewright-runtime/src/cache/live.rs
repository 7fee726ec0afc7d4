//! A live read laid over the cache: for a run that must not see what the cache still shows.

use std::sync::Arc;

use super::{
    kind::Arrival,
    store::{Row, Store},
};
use crate::object::ObjectKey;

/// What a live read gave.
pub(crate) struct LiveView {
    pub(crate) overlay: Arc<Overlay>,
    /// What the cache must show before it is as new.
    pub(crate) arrivals: Vec<(Option<String>, Arrival)>,
}

/// The namespaces (`None`: all) that were read live, each with its objects. It copies nothing of the cache.
#[derive(Debug, Default)]
pub(crate) struct Overlay(Vec<(Option<String>, Store)>);

impl Overlay {
    pub(super) fn add(&mut self, namespace: Option<String>, store: Store) {
        self.0.push((namespace, store));
    }

    /// What was read live of this namespace, if it was.
    fn of(&self, namespace: Option<&str>) -> Option<&Store> {
        let covers = |scope: &Option<String>| scope.is_none() || scope.as_deref() == namespace;
        self.0.iter().find(|(scope, _)| covers(scope)).map(|(_, store)| store)
    }

    /// The object of a key; `None` if the cache is to be asked.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Option<Row>> {
        self.of(key.namespace()).map(|store| store.get(key).cloned())
    }

    /// What a query finds, given what it finds in the cache.
    pub(super) fn merge(&self, cached: Vec<Row>, query: impl Fn(&Store) -> Vec<Row>) -> Vec<Row> {
        let cached = cached.into_iter().filter(|row| self.of(row.key.namespace()).is_none());
        let mut rows = cached.chain(self.0.iter().flat_map(|(_, store)| query(store))).collect::<Vec<_>>();
        rows.sort();
        rows.dedup();
        rows
    }
}
