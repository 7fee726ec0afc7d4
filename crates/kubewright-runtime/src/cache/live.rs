//! A live read laid over the cache: for a run that must not see what the cache still shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::future::try_join_all;
use kube::{api::ListParams, core::ObjectList};
use kubewright_packed::RawObject;
use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

use super::{
    kind::{Arrival, Kind},
    store::{Row, Store},
};
use crate::{
    client::{Client, ClientError},
    object::{ObjectKey, version_of},
};

/// With more objects than this a list of all is cheaper than one for each.
const MOST: usize = 8;

/// Some objects of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Objects {
    These(BTreeSet<ObjectKey>),
    /// It isn't known which, or too many.
    Any,
}

impl Objects {
    pub(crate) fn one(key: ObjectKey) -> Self {
        Self::These(BTreeSet::from([key]))
    }

    pub(crate) fn merge(&mut self, others: &Self) {
        match (&mut *self, others) {
            (Self::These(keys), Self::These(others)) => keys.extend(others.iter().cloned()),
            _ => *self = Self::Any,
        }
        if matches!(self, Self::These(keys) if keys.len() > MOST) {
            *self = Self::Any;
        }
    }
}

/// What a live read gave.
pub(crate) struct LiveView {
    pub(crate) overlay: Arc<Overlay>,
    /// What the cache must show before it is as new.
    pub(crate) arrivals: Vec<(Option<String>, Arrival)>,
}

/// What was read live: namespaces (`None`: all), and some objects. It copies nothing of the cache.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    namespaces: Vec<(Option<String>, Arc<Listed>)>,
    keys: BTreeSet<ObjectKey>,
    /// Those of `keys` that there are.
    objects: Store,
}

/// A namespace as the API server had it.
#[derive(Debug)]
struct Listed {
    store: Store,
    arrivals: Vec<Arrival>,
}

impl Overlay {
    /// Whether what the cache has of this key doesn't count.
    fn covers(&self, key: &ObjectKey) -> bool {
        self.keys.contains(key) || self.of(key.namespace()).is_some()
    }

    /// What was read live of this whole namespace, if it was.
    fn of(&self, namespace: Option<&str>) -> Option<&Store> {
        let covers = |scope: &Option<String>| scope.is_none() || scope.as_deref() == namespace;
        self.namespaces.iter().find(|(scope, _)| covers(scope)).map(|(_, listed)| &listed.store)
    }

    /// The object of a key; `None` if the cache is to be asked.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Option<Row>> {
        let store = self.of(key.namespace()).or_else(|| self.keys.contains(key).then_some(&self.objects));
        store.map(|store| store.get(key).cloned())
    }

    /// What a query finds, given what it finds in the cache.
    pub(super) fn merge(&self, cached: Vec<Row>, query: impl Fn(&Store) -> Vec<Row>) -> Vec<Row> {
        let cached = cached.into_iter().filter(|row| !self.covers(&row.key));
        let listed = self.namespaces.iter().flat_map(|(_, listed)| query(&listed.store));
        let mut rows = cached.chain(listed).chain(query(&self.objects)).collect::<Vec<_>>();
        rows.sort();
        rows.dedup();
        rows
    }
}

/// The lists of namespaces that runs make of one kind. Those that wait for one share the next.
#[derive(Default)]
pub(super) struct Lists {
    moment: AtomicU64,
    last: Mutex<BTreeMap<Option<String>, Arc<Turn<Last>>>>,
}

/// The list made last, as long as a run uses it, and the moment when it began.
type Last = (u64, Weak<Listed>);

impl Lists {
    fn now(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::Relaxed)
    }

    /// One at a time makes a list of a namespace.
    fn turn(&self, namespace: Option<&str>) -> Arc<Turn<Last>> {
        let mut last = self.last.lock();
        last.retain(|_, turn| {
            Arc::strong_count(turn) > 1 || turn.try_lock().is_ok_and(|last| last.1.strong_count() > 0)
        });
        last.entry(namespace.map(Into::into)).or_default().clone()
    }
}

impl Kind {
    /// The cache in which these objects of these namespaces are as the API server has them now.
    pub(crate) async fn live_view(
        &self,
        api: &Client,
        scopes: Vec<(Option<String>, Objects)>,
    ) -> Result<LiveView, ClientError> {
        let (mut overlay, mut arrivals) = (Overlay::default(), Vec::new());
        for (namespace, objects) in scopes {
            let scope = namespace.as_deref();
            let seen = match objects {
                Objects::Any => {
                    let listed = self.listed(api, scope).await?;
                    let seen = listed.arrivals.clone();
                    overlay.namespaces.push((namespace.clone(), listed));
                    seen
                }
                Objects::These(keys) => {
                    let lists = try_join_all(keys.iter().map(|key| self.find(api, scope, key))).await?;
                    // What the first of them lacked may be back by the time of the last.
                    let version = lists.iter().filter_map(version_of_list).min();
                    let found = lists.into_iter().flat_map(|list| list.items).collect::<Vec<_>>();
                    let seen = self.newer_than_cache(scope, &found, version, |known, found| {
                        keys.difference(found).filter_map(|key| known.get(key)).cloned().collect()
                    });
                    self.fill(&mut overlay.objects, &found);
                    overlay.keys.extend(keys);
                    seen
                }
            };
            arrivals.extend(seen.into_iter().map(|arrival| (namespace.clone(), arrival)));
        }
        Ok(LiveView { overlay: Arc::new(overlay), arrivals })
    }

    /// All that the cache would hold of a namespace, from the API server: as of a moment after this call.
    async fn listed(&self, api: &Client, namespace: Option<&str>) -> Result<Arc<Listed>, ClientError> {
        let lists = self.lists();
        let (called, turn) = (lists.now(), lists.turn(namespace));
        let mut last = turn.lock().await;
        if let Some(listed) = last.1.upgrade().filter(|_| last.0 > called) {
            return Ok(listed);
        }
        let began = lists.now();
        let list = self.ask(api, namespace, self.selection(namespace)).await?;
        let (version, found) = (version_of_list(&list), list.items);
        let arrivals = self.newer_than_cache(namespace, &found, version, |known, found| {
            known.within(namespace).filter(|row| !found.contains(&row.key)).cloned().collect()
        });
        let mut store = Store::default();
        self.fill(&mut store, &found);
        let listed = Arc::new(Listed { store, arrivals });
        *last = (began, Arc::downgrade(&listed));
        Ok(listed)
    }

    /// One object as the cache would hold it, from the API server. It is a list all the same: an operator that watches a kind may
    /// list it, and the API server knows best what a selector selects.
    async fn find(
        &self,
        api: &Client,
        namespace: Option<&str>,
        key: &ObjectKey,
    ) -> Result<ObjectList<RawObject>, ClientError> {
        let params = self.selection(namespace);
        let name = format!("metadata.name={}", key.name());
        let fields = params.field_selector.map_or_else(|| name.clone(), |fields| format!("{fields},{name}"));
        self.ask(api, namespace, ListParams { field_selector: Some(fields), ..params }).await
    }

    async fn ask(
        &self,
        api: &Client,
        namespace: Option<&str>,
        params: ListParams,
    ) -> Result<ObjectList<RawObject>, ClientError> {
        if !self.is_metadata_only() {
            return api.list_as(self.name(), namespace, params).await;
        }
        let list: ObjectList<RawObject<true>> = api.list_metadata_as(self.name(), namespace, params).await?;
        let items = list.items.into_iter().map(RawObject::into_object).collect();
        Ok(ObjectList { types: list.types, metadata: list.metadata, items })
    }

    fn fill(&self, store: &mut Store, found: &[RawObject]) {
        for draft in found {
            let row = match self.intake(store.shared(ObjectKey::of(draft)), draft) {
                Ok((row, _)) => Some(row),
                // As in the cache: what can't be decoded stays as it was last seen, and isn't gone.
                Err(_) => self.read(|known| known.get(&ObjectKey::of(draft)).filter(|row| row.is(draft)).cloned()),
            };
            row.into_iter().for_each(|row| drop(store.insert(row)));
        }
    }

    /// What the cache must come to show to be as new as a list of this version: its newest object, and the absence of what
    /// `missing` finds in the cache.
    fn newer_than_cache(
        &self,
        namespace: Option<&str>,
        found: &[RawObject],
        list: Option<u64>,
        missing: impl FnOnce(&Store, &BTreeSet<ObjectKey>) -> Vec<Row>,
    ) -> Vec<Arrival> {
        let newest = found.iter().filter_map(version_of).max();
        // It may be gone again when the cache lists.
        newest.into_iter().for_each(|version| self.note_version(namespace, version));
        let keys = found.iter().map(ObjectKey::of).collect();
        let absent = self.read(|store| missing(store, &keys)).into_iter().map(|row| Arrival::Absent {
            key: row.key.clone(),
            uid: row.uid.as_ref().map(ToString::to_string).unwrap_or_default(),
            list: list.unwrap_or(u64::MAX),
        });
        newest.map(Arrival::Version).into_iter().chain(absent).collect()
    }
}

/// The version of the whole kind at which a list was made.
pub(super) fn version_of_list<T: Clone>(list: &ObjectList<T>) -> Option<u64> {
    list.metadata.resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_objects_are_named_and_many_are_any() {
        let key = |number: usize| ObjectKey::cluster(&format!("k{number}"));
        let mut objects = Objects::one(key(0));
        (0..MOST).for_each(|number| objects.merge(&Objects::one(key(number))));
        assert!(matches!(&objects, Objects::These(keys) if keys.len() == MOST));
        let mut one = Objects::one(key(0));
        one.merge(&Objects::Any);
        objects.merge(&Objects::one(key(MOST)));
        assert_eq!((one, objects), (Objects::Any, Objects::Any));
    }
}
