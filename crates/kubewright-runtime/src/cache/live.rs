//! Live reads for a run for which the cache is too old.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::try_join_all;
use kube::{api::ListParams, core::ObjectList};
use kubewright_packed::RawObject;

use super::{
    expected::{ExpectedState, ObjectSet},
    kind::Kind,
    overlay::{LiveList, Overlay},
    store::{Row, Store},
};
use crate::{
    client::{Client, ClientError},
    object::{ObjectKey, version_of},
};

/// The result of a live read.
pub(crate) struct LiveView {
    pub(crate) overlay: Arc<Overlay>,
    /// The states at which the cache is as new, by namespace.
    pub(crate) expected: Vec<(Option<String>, ExpectedState)>,
}

impl Kind {
    /// Reads these objects of these namespaces live.
    pub(crate) async fn live_view(
        &self,
        api: &Client,
        scopes: Vec<(Option<String>, ObjectSet)>,
    ) -> Result<LiveView, ClientError> {
        let (mut overlay, mut expected) = (Overlay::default(), Vec::new());
        for (namespace, objects) in scopes {
            let scope = namespace.as_deref();
            let states = match objects {
                ObjectSet::All => {
                    let listed = self.listed(api, scope).await?;
                    let states = listed.expected.clone();
                    overlay.namespaces.push((namespace.clone(), listed));
                    states
                }
                ObjectSet::Keys(keys) => {
                    let lists = try_join_all(keys.iter().map(|key| self.find(api, scope, key))).await?;
                    // An object that the first list lacked may exist again at the time of the last.
                    let version = lists.iter().filter_map(version_of_list).min();
                    let found = lists.into_iter().flat_map(|list| list.items).collect::<Vec<_>>();
                    let states = self.newer_than_cache(scope, &found, version, |known, found| {
                        keys.difference(found).filter_map(|key| known.get(key)).cloned().collect()
                    });
                    self.fill(&mut overlay.objects, &found);
                    overlay.keys.extend(keys);
                    states
                }
            };
            expected.extend(states.into_iter().map(|state| (namespace.clone(), state)));
        }
        Ok(LiveView { overlay: Arc::new(overlay), expected })
    }

    /// Lists the objects that the cache would hold of a namespace, as of a moment after this call.
    async fn listed(&self, api: &Client, namespace: Option<&str>) -> Result<Arc<LiveList>, ClientError> {
        let lists = self.lists();
        let (called, lock) = (lists.next(), lists.lock_of(namespace));
        let mut last = lock.lock().await;
        if let Some(listed) = last.1.upgrade().filter(|_| last.0 > called) {
            return Ok(listed);
        }
        let began = lists.next();
        let list = self.ask(api, namespace, self.selection(namespace)).await?;
        let (version, found) = (version_of_list(&list), list.items);
        let expected = self.newer_than_cache(namespace, &found, version, |known, found| {
            known.within(namespace).filter(|row| !found.contains(&row.key)).cloned().collect()
        });
        let mut store = Store::default();
        self.fill(&mut store, &found);
        let listed = Arc::new(LiveList { store, expected });
        *last = (began, Arc::downgrade(&listed));
        Ok(listed)
    }

    /// Reads one object as the cache would hold it. The request is a list: an operator that watches a kind has the
    /// right to list it, and the API server applies the selectors.
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
            let row = match self.codec().encode(store.shared(ObjectKey::of(draft)), draft) {
                Ok((row, _)) => Some(row),
                // As in the cache, an object that can't be decoded stays as it was last seen.
                Err(_) => self.read(|known| known.get(&ObjectKey::of(draft)).filter(|row| row.is(draft)).cloned()),
            };
            row.into_iter().for_each(|row| drop(store.insert(row)));
        }
    }

    /// Returns the states at which the cache is as new as a list at this version: it has seen the newest object, and
    /// the objects that `missing` finds in the cache are gone.
    fn newer_than_cache(
        &self,
        namespace: Option<&str>,
        found: &[RawObject],
        list: Option<u64>,
        missing: impl FnOnce(&Store, &BTreeSet<ObjectKey>) -> Vec<Row>,
    ) -> Vec<ExpectedState> {
        let newest = found.iter().filter_map(version_of).max();
        // The object may be gone when the cache lists.
        newest.into_iter().for_each(|version| self.note_version(namespace, version));
        let keys = found.iter().map(ObjectKey::of).collect();
        let absent = self.read(|store| missing(store, &keys)).into_iter().map(|row| ExpectedState::Absent {
            key: row.key.clone(),
            uid: row.uid.as_ref().map(ToString::to_string).unwrap_or_default(),
            list: list.unwrap_or(u64::MAX),
        });
        newest.map(ExpectedState::Version).into_iter().chain(absent).collect()
    }
}

/// Returns the resource version of a list.
pub(super) fn version_of_list<T: Clone>(list: &ObjectList<T>) -> Option<u64> {
    list.metadata.resource_version.as_deref()?.parse().ok()
}
