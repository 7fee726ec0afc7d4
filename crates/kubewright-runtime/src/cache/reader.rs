//! Reading the cache.

use std::{fmt, marker::PhantomData, sync::Arc};

use kube::core::{Selector, SelectorExt};

use super::{
    kind::Kind,
    overlay::Overlay,
    store::{Row, Store},
};
use crate::{
    object::{AnyObject, ObjectKey},
    trace::{Query, RunRecorder},
};

/// Reads objects of one kind from the cache as `K`, after a live read of those for which the cache was too old.
///
/// Objects are returned in the order of their keys. They are stored packed, so each call decodes the objects that it
/// returns; objects that a query leaves out cost little. [`Reader::keys`] and [`Reader::indexed_keys`] decode nothing.
pub struct Reader<K> {
    kind: Arc<Kind>,
    live: Option<Arc<Overlay>>,
    /// The record of the run that reads, if it is traced.
    recorder: RunRecorder,
    /// What notes the versions that the run sees, whether or not the reads appear in its trace.
    seen: RunRecorder,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for Reader<K> {
    fn clone(&self) -> Self {
        let Self { kind, live, recorder, seen, of } = self;
        let (recorder, seen) = (recorder.clone(), seen.clone());
        Self { kind: kind.clone(), live: live.clone(), recorder, seen, of: *of }
    }
}

impl<K> fmt::Debug for Reader<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reader").field(&std::any::type_name::<K>()).finish()
    }
}

impl<K: AnyObject> Reader<K> {
    /// Returns a reader of a kind that was declared to be read as `K`, with the objects that were read live.
    pub(crate) fn new(kind: Arc<Kind>, live: Option<Arc<Overlay>>) -> Self {
        Self { kind, live, recorder: RunRecorder::default(), seen: RunRecorder::default(), of: PhantomData }
    }

    /// Returns a reader whose reads appear in a trace.
    pub(crate) fn noted(self, recorder: &RunRecorder) -> Self {
        Self { recorder: recorder.clone(), ..self }
    }

    /// Returns a reader that notes the versions of what it returns.
    pub(crate) fn seen_by(self, recorder: &RunRecorder) -> Self {
        Self { seen: recorder.clone(), ..self }
    }

    /// Returns the object with this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        let row = self.row(key);
        self.note(|| Query::Name { object: key.to_string() }, row.as_slice());
        row.and_then(|row| self.kind.codec().decode(&row))
    }

    /// Returns the objects of a namespace, or of all namespaces, whose labels match.
    pub fn list(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Arc<K>> {
        self.decode(self.selected_noting(namespace, selector))
    }

    /// Returns the keys of the objects that [`Reader::list`] returns, without decoding them.
    pub fn keys(&self, namespace: Option<&str>, selector: &Selector) -> Vec<ObjectKey> {
        keys(self.selected_noting(namespace, selector))
    }

    /// Returns the objects whose controller has this UID.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let rows = self.rows(|store| store.controlled_by(uid).cloned().collect());
        self.note(|| Query::Owner, &rows);
        self.decode(rows)
    }

    /// Returns the objects with this value in the index with this name.
    ///
    /// # Panics
    /// If nothing declares an index with this name ([`Controller::index`](crate::controller::Controller::index),
    /// [`Manager::index`](crate::manager::Manager::index)).
    pub fn indexed(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.decode(self.found(index, value))
    }

    /// Returns the keys of the objects that [`Reader::indexed`] returns, without decoding them.
    ///
    /// # Panics
    /// As [`Reader::indexed`].
    pub fn indexed_keys(&self, index: &str, value: &str) -> Vec<ObjectKey> {
        keys(self.found(index, value))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        let count = match &self.live {
            None => self.kind.read(Store::len),
            Some(_) => self.rows(|store| store.within(None).cloned().collect()).len(),
        };
        self.count(|| Query::Cache, count);
        count
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether there is an object with this key.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        let row = self.row(key);
        self.note(|| Query::Name { object: key.to_string() }, row.as_slice());
        row.is_some()
    }

    /// Returns whether the object with this key has another UID.
    pub(crate) fn is_another(&self, key: &ObjectKey, uid: &str) -> bool {
        self.row(key).is_some_and(|row| !row.has_uid(uid))
    }

    /// Returns whether the object with this key has this UID.
    pub(crate) fn has(&self, key: &ObjectKey, uid: &str) -> bool {
        self.row(key).is_some_and(|row| row.has_uid(uid))
    }

    fn note(&self, query: impl FnOnce() -> Query, rows: &[Row]) {
        if self.seen.has_versions() {
            rows.iter().for_each(|row| self.seen.saw(self.kind.name(), &row.key, row.version.number()));
        }
        self.count(query, rows.len());
    }

    fn count(&self, query: impl FnOnce() -> Query, found: usize) {
        self.recorder.read(|| self.kind.name().kind.clone().into(), query, found);
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
            rows.retain(|row| selector.matches(&self.kind.codec().labels(row)));
        }
        rows
    }

    fn selected_noting(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Row> {
        let rows = self.selected(namespace, selector);
        let query = || Query::Labels { namespace: namespace.map(Into::into), selector: selector.to_string() };
        self.note(query, &rows);
        rows
    }

    fn found(&self, index: &str, value: &str) -> Vec<Row> {
        let number = self.kind.codec().index_number(index);
        let number = number.unwrap_or_else(|| panic!("{} has no index {index:?}", std::any::type_name::<K>()));
        let rows = self.rows(|store| store.indexed(number, value).cloned().collect());
        self.note(|| Query::Index { index: index.into(), value: value.into() }, &rows);
        rows
    }

    fn decode(&self, rows: Vec<Row>) -> Vec<Arc<K>> {
        rows.iter().filter_map(|row| self.kind.codec().decode(row)).collect()
    }
}

fn keys(rows: Vec<Row>) -> Vec<ObjectKey> {
    rows.iter().map(|row| row.key.clone()).collect()
}
