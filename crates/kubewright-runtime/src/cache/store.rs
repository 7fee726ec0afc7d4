//! The objects of one kind with their indexes. Pure: no locks, no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use indexmap::IndexMap;
use tracing::error;

use crate::{
    object::{Object, ObjectKey},
    owner::controller_of,
};

/// The built-in index: the UID of the owner that has `controller: true`.
const CONTROLLER: &str = "metadata.controller.uid";

type Extract<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// One exact-match index: from a value to the keys of the objects that have it.
#[derive(Clone)]
struct Index<K> {
    extract: Extract<K>,
    keys: BTreeMap<String, BTreeSet<ObjectKey>>,
}

impl<K> Index<K> {
    /// The object's values. The function is an operator's: if it panics, the object has none.
    fn values(&self, object: &K) -> Vec<String> {
        catch_unwind(AssertUnwindSafe(|| (self.extract)(object))).unwrap_or_else(|_| {
            error!(kind = std::any::type_name::<K>(), "an index function panicked: an object is not found by it");
            Vec::new()
        })
    }

    fn add(&mut self, key: &ObjectKey, object: &K) {
        for value in self.values(object) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &ObjectKey, object: &K) {
        for value in self.values(object) {
            let Some(keys) = self.keys.get_mut(&value) else { continue };
            keys.remove(key);
            if keys.is_empty() {
                self.keys.remove(&value);
            }
        }
    }
}

/// Objects by key, and keys by indexed value.
pub(super) struct Store<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    indexes: IndexMap<&'static str, Index<K>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        let indexes = self
            .indexes
            .iter()
            .map(|(name, index)| (*name, Index { extract: index.extract.clone(), keys: index.keys.clone() }));
        Self { objects: self.objects.clone(), indexes: indexes.collect() }
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("objects", &self.objects.len()).finish_non_exhaustive()
    }
}

impl<K: Object> Store<K> {
    pub(super) fn new() -> Self {
        let mut store = Self { objects: BTreeMap::new(), indexes: IndexMap::new() };
        store.index(
            CONTROLLER,
            Arc::new(|object: &K| controller_of(object).into_iter().map(|owner| owner.uid.clone()).collect()),
        );
        store
    }

    /// Adds an index, or replaces the one of that name, and fills it.
    pub(super) fn index(&mut self, name: &'static str, extract: Extract<K>) {
        let mut index = Index { extract, keys: BTreeMap::new() };
        for (key, object) in &self.objects {
            index.add(key, object);
        }
        self.indexes.insert(name, index);
    }

    /// Puts an object in the place of what its key holds, which is returned.
    pub(super) fn insert(&mut self, key: ObjectKey, object: Arc<K>) -> Option<Arc<K>> {
        let old = self.objects.insert(key.clone(), object.clone());
        for index in self.indexes.values_mut() {
            if let Some(old) = &old {
                index.remove(&key, old);
            }
            index.add(&key, &object);
        }
        old
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        for index in self.indexes.values_mut() {
            index.remove(key, &old);
        }
        Some(old)
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The objects of a namespace, or all of them, in the order of their keys.
    pub(super) fn within<'a>(
        &'a self,
        namespace: Option<&'a str>,
    ) -> Box<dyn Iterator<Item = (&'a ObjectKey, &'a Arc<K>)> + 'a> {
        match namespace {
            None => Box::new(self.objects.iter()),
            Some(namespace) => Box::new(
                self.objects
                    .range(ObjectKey::namespaced(namespace, "")..)
                    .take_while(move |(key, _)| key.namespace() == Some(namespace)),
            ),
        }
    }

    /// The objects with this value in this index, in the order of their keys; `None` if there is no such index.
    pub(super) fn indexed(&self, index: &str, value: &str) -> Option<Vec<Arc<K>>> {
        let keys = self.indexes.get(index)?.keys.get(value);
        Some(keys.into_iter().flatten().filter_map(|key| self.objects.get(key).cloned()).collect())
    }

    /// The objects whose controller has this UID.
    pub(super) fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.indexed(CONTROLLER, uid).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn config_map(namespace: &str, name: &str, owner: &str) -> (ObjectKey, Arc<ConfigMap>) {
        let object: ConfigMap = serde_json::from_value(json!({"metadata": {
            "namespace": namespace, "name": name, "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "not-the-controller"},
                {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner, "controller": true},
            ],
        }}))
        .expect("a config map");
        (ObjectKey::of(&object), Arc::new(object))
    }

    fn names(objects: &[Arc<ConfigMap>]) -> Vec<&str> {
        objects.iter().filter_map(|object| object.metadata.name.as_deref()).collect()
    }

    #[test]
    fn children_are_found_by_their_controllers_uid_only() {
        let mut store = Store::new();
        for (name, owner) in [("b", "u1"), ("a", "u1"), ("c", "u2")] {
            let (key, object) = config_map("x", name, owner);
            store.insert(key, object);
        }
        assert_eq!(names(&store.controlled_by("u1")), ["a", "b"]);
        assert!(store.controlled_by("not-the-controller").is_empty());

        let (key, object) = config_map("x", "a", "u2");
        store.insert(key, object);
        store.remove(&ObjectKey::namespaced("x", "b"));
        assert!(store.controlled_by("u1").is_empty());
        assert_eq!(names(&store.controlled_by("u2")), ["a", "c"]);
    }

    #[test]
    fn a_namespace_is_a_range_of_keys() {
        let mut store = Store::new();
        for (namespace, name) in [("b", "1"), ("a", "1"), ("ab", "1"), ("a", "2")] {
            let (key, object) = config_map(namespace, name, "u");
            store.insert(key, object);
        }
        let within = |namespace| store.within(namespace).map(|(key, _)| key.to_string()).collect::<Vec<_>>();
        assert_eq!(within(Some("a")), ["a/1", "a/2"]);
        assert_eq!(within(None).len(), 4);
    }

    #[test]
    fn an_index_covers_what_was_there_before_it() {
        let mut store = Store::new();
        let (key, object) = config_map("a", "1", "u");
        store.insert(key, object);
        store.index("name", Arc::new(|object: &ConfigMap| object.metadata.name.iter().cloned().collect()));
        assert_eq!(store.indexed("name", "1").map(|found| found.len()), Some(1));
        assert_eq!(store.indexed("name", "2").map(|found| found.len()), Some(0));
        assert!(store.indexed("absent", "1").is_none());
    }
}
