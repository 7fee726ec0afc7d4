//! Reading the cache.

use std::{fmt, marker::PhantomData, sync::Arc};

use kube::core::{Selector, SelectorExt};

use super::{
    kind::Kind,
    live::Overlay,
    store::{Row, Store},
};
use crate::{client::AnyObject, object::ObjectKey};

/// Reads of one kind as `K`s: from the shared cache, or with a live read laid over it, when the cache was too old.
///
/// Objects come in the order of their keys. They are kept packed, so each read makes the objects that it returns; what a
/// query leaves out costs little. Where keys are enough, ask for keys.
pub struct Reader<K> {
    kind: Arc<Kind>,
    live: Option<Arc<Overlay>>,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for Reader<K> {
    fn clone(&self) -> Self {
        Self { kind: self.kind.clone(), live: self.live.clone(), of: PhantomData }
    }
}

impl<K> fmt::Debug for Reader<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reader").field(&std::any::type_name::<K>()).finish()
    }
}

impl<K: AnyObject> Reader<K> {
    /// Reads of a kind that was declared to be read as `K`, with what was read live, if anything was.
    pub(crate) fn new(kind: Arc<Kind>, live: Option<Arc<Overlay>>) -> Self {
        Self { kind, live, of: PhantomData }
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.row(key).and_then(|row| self.kind.unpack(&row))
    }

    /// The objects of a namespace, or of all, whose labels match.
    pub fn list(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Arc<K>> {
        self.unpack(self.selected(namespace, selector))
    }

    /// The keys of what [`Reader::list`] gives, without making the objects.
    pub fn keys(&self, namespace: Option<&str>, selector: &Selector) -> Vec<ObjectKey> {
        keys(self.selected(namespace, selector))
    }

    /// The objects whose controller has this UID.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.unpack(self.rows(|store| store.controlled_by(uid).cloned().collect()))
    }

    /// The objects with this value in the index of this name.
    ///
    /// # Panics
    /// If no controller declared such an index ([`crate::controller::Controller::index`]).
    pub fn indexed(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.unpack(self.found(index, value))
    }

    /// The keys of what [`Reader::indexed`] gives, without making the objects.
    ///
    /// # Panics
    /// As [`Reader::indexed`].
    pub fn indexed_keys(&self, index: &str, value: &str) -> Vec<ObjectKey> {
        keys(self.found(index, value))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        match &self.live {
            None => self.kind.read(Store::len),
            Some(_) => self.rows(|store| store.within(None).cloned().collect()).len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is an object of this key.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.row(key).is_some()
    }

    /// Whether the key is another object's than the one of this UID.
    pub(crate) fn is_another(&self, key: &ObjectKey, uid: &str) -> bool {
        self.row(key).is_some_and(|row| !row.has_uid(uid))
    }

    fn row(&self, key: &ObjectKey) -> Option<Row> {
        let live = self.live.as_ref().and_then(|live| live.get(key));
        live.unwrap_or_else(|| self.kind.read(|store| store.get(key).cloned()))
    }

    fn rows(&self, query: impl Fn(&Store) -> Vec<Row>) -> Vec<Row> {
        let cached = self.kind.read(&query);
        match &self.live {
            None => cached,
            Some(live) => live.merge(cached, query),
        }
    }

    fn selected(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Row> {
        let mut rows = self.rows(|store| store.within(namespace).cloned().collect());
        if !selector.selects_all() {
            rows.retain(|row| selector.matches(&self.kind.labels(row)));
        }
        rows
    }

    fn found(&self, index: &str, value: &str) -> Vec<Row> {
        let number = self.kind.index_number(index);
        let number = number.unwrap_or_else(|| panic!("{} has no index {index:?}", std::any::type_name::<K>()));
        self.rows(|store| store.indexed(number, value).cloned().collect())
    }

    fn unpack(&self, rows: Vec<Row>) -> Vec<Arc<K>> {
        rows.iter().filter_map(|row| self.kind.unpack(row)).collect()
    }
}

fn keys(rows: Vec<Row>) -> Vec<ObjectKey> {
    rows.iter().map(|row| row.key.clone()).collect()
}
