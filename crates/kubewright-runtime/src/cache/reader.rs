//! Reading the cache.

use std::{fmt, marker::PhantomData, sync::Arc};

use kube::core::{Selector, SelectorExt};

use super::{
    kind::Kind,
    live::Overlay,
    store::{Row, Store},
};
use crate::{
    client::AnyObject,
    object::ObjectKey,
    trace::{Query, RunRecorder},
};

/// Reads of one kind as `K`s: from the shared cache, or with a live read laid over it, when the cache was too old.
///
/// Objects come in the order of their keys. They are kept packed, so each read makes the objects that it returns; what a
/// query leaves out costs little. Where keys are enough, ask for keys.
pub struct Reader<K> {
    kind: Arc<Kind>,
    live: Option<Arc<Overlay>>,
    /// Of the run that reads, if it is traced.
    recorder: RunRecorder,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for Reader<K> {
    fn clone(&self) -> Self {
        let Self { kind, live, recorder, of } = self;
        Self { kind: kind.clone(), live: live.clone(), recorder: recorder.clone(), of: *of }
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
        Self { kind, live, recorder: RunRecorder::default(), of: PhantomData }
    }

    /// The same, but a trace tells what is read by it.
    pub(crate) fn noted(self, recorder: &RunRecorder) -> Self {
        Self { recorder: recorder.clone(), ..self }
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        let row = self.row(key);
        self.note(|| Query::Name { object: key.clone() }, usize::from(row.is_some()));
        row.and_then(|row| self.kind.unpack(&row))
    }

    /// The objects of a namespace, or of all, whose labels match.
    pub fn list(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Arc<K>> {
        self.unpack(self.selected_noting(namespace, selector))
    }

    /// The keys of what [`Reader::list`] gives, without making the objects.
    pub fn keys(&self, namespace: Option<&str>, selector: &Selector) -> Vec<ObjectKey> {
        keys(self.selected_noting(namespace, selector))
    }

    /// The objects whose controller has this UID.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let rows = self.rows(|store| store.controlled_by(uid).cloned().collect());
        self.note(|| Query::Owner, rows.len());
        self.unpack(rows)
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
        let count = match &self.live {
            None => self.kind.read(Store::len),
            Some(_) => self.rows(|store| store.within(None).cloned().collect()).len(),
        };
        self.note(|| Query::Cache, count);
        count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is an object of this key.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        let is_there = self.row(key).is_some();
        self.note(|| Query::Name { object: key.clone() }, usize::from(is_there));
        is_there
    }

    /// Whether the key is another object's than the one of this UID.
    pub(crate) fn is_another(&self, key: &ObjectKey, uid: &str) -> bool {
        self.row(key).is_some_and(|row| !row.has_uid(uid))
    }

    fn note(&self, query: impl FnOnce() -> Query, found: usize) {
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
            rows.retain(|row| selector.matches(&self.kind.labels(row)));
        }
        rows
    }

    fn selected_noting(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Row> {
        let rows = self.selected(namespace, selector);
        self.note(|| Query::labels(namespace, selector), rows.len());
        rows
    }

    fn found(&self, index: &str, value: &str) -> Vec<Row> {
        let number = self.kind.index_number(index);
        let number = number.unwrap_or_else(|| panic!("{} has no index {index:?}", std::any::type_name::<K>()));
        let rows = self.rows(|store| store.indexed(number, value).cloned().collect());
        self.note(|| Query::Index { index: index.into(), value: value.into() }, rows.len());
        rows
    }

    fn unpack(&self, rows: Vec<Row>) -> Vec<Arc<K>> {
        rows.iter().filter_map(|row| self.kind.unpack(row)).collect()
    }
}

fn keys(rows: Vec<Row>) -> Vec<ObjectKey> {
    rows.iter().map(|row| row.key.clone()).collect()
}
