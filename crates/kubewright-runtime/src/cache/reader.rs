//! Reading the cache.

use std::{fmt, sync::Arc};

use kube::core::{Selector, SelectorExt};

use super::{kind::Kind, store::Store};
use crate::object::{Object, ObjectKey};

/// Reads of one kind: from the shared cache, or from a copy with a live read in it, when the cache was too old.
///
/// Objects come in the order of their keys. They are shared, so a read copies nothing.
pub struct Reader<K>(Source<K>);

enum Source<K> {
    Cache(Arc<Kind<K>>),
    Copy(Arc<Store<K>>),
}

impl<K> Clone for Reader<K> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Source::Cache(kind) => Source::Cache(kind.clone()),
            Source::Copy(store) => Source::Copy(store.clone()),
        })
    }
}

impl<K> fmt::Debug for Reader<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reader").field(&std::any::type_name::<K>()).finish()
    }
}

impl<K: Object> Reader<K> {
    pub(crate) fn new(kind: Arc<Kind<K>>) -> Self {
        Self(Source::Cache(kind))
    }

    /// The cache as it is, but with the objects of these namespaces (`None`: of all) as a live read gave them.
    pub(crate) fn with_live(kind: &Kind<K>, live: Vec<(Option<String>, Vec<Arc<K>>)>) -> Self {
        let mut store = kind.read(Store::clone);
        for (namespace, objects) in live {
            let stale = store.within(namespace.as_deref()).map(|(key, _)| key.clone()).collect::<Vec<_>>();
            stale.iter().for_each(|key| drop(store.remove(key)));
            for object in objects {
                store.insert(ObjectKey::of(object.as_ref()), object);
            }
        }
        Self(Source::Copy(Arc::new(store)))
    }

    fn read<T>(&self, read: impl FnOnce(&Store<K>) -> T) -> T {
        match &self.0 {
            Source::Cache(kind) => kind.read(read),
            Source::Copy(store) => read(store),
        }
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read(|store| store.get(key).cloned())
    }

    /// The objects of a namespace, or of all, whose labels match.
    pub fn list(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Arc<K>> {
        let none = Default::default();
        let matches = |object: &K| selector.matches(object.meta().labels.as_ref().unwrap_or(&none));
        self.read(|store| {
            store.within(namespace).filter(|(_, object)| matches(object)).map(|(_, object)| object.clone()).collect()
        })
    }

    /// The objects whose controller has this UID.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.read(|store| store.controlled_by(uid))
    }

    /// The objects with this value in the index of this name.
    ///
    /// # Panics
    /// If no controller declared such an index ([`crate::controller::Controller::index`]).
    pub fn indexed(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        let found = self.read(|store| store.indexed(index, value));
        found.unwrap_or_else(|| panic!("{} has no index {index:?}", std::any::type_name::<K>()))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read(Store::len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
