//! What a reconcile wrote: the read-your-writes barrier waits for it.

use std::{any::TypeId, collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::{
    cache::{Arrival, Cache, Kind},
    client::ClientError,
    object::{Object, ObjectKey, version_of},
};

/// One write that the key's next reconcile must see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) kind: TypeId,
    /// Where the object is; the cache may be fed by several watches.
    pub(crate) namespace: Option<String>,
    /// How it will show; `None` if no answer came, so that it may have happened or not, and only a live read can tell.
    pub(crate) arrival: Option<Arrival>,
}

/// The writes of one run. Clones share it: it outlives a run that is cut off, and then still has its writes.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    next: u64,
    writes: BTreeMap<u64, Write>,
}

impl Journal {
    /// Notes a write before it is sent: should its answer be lost, or the run be cut off, it stays noted.
    pub(super) fn begin<T: Object>(&self, cache: &Cache, namespace: Option<&str>) -> Pending<'_, T> {
        let kind = cache.find::<T>();
        let mut entries = self.0.lock();
        let number = entries.next;
        entries.next += 1;
        // What is not cached can't be read stale.
        if kind.is_some() {
            let namespace = namespace.map(str::to_owned);
            entries.writes.insert(number, Write { kind: Kind::<T>::id(), namespace, arrival: None });
        }
        Pending { journal: self, number, kind }
    }

    pub(crate) fn writes(&self) -> Vec<Write> {
        self.0.lock().writes.values().cloned().collect()
    }
}

/// A write that was sent.
pub(super) struct Pending<'a, T> {
    journal: &'a Journal,
    number: u64,
    kind: Option<Arc<Kind<T>>>,
}

impl<T: Object> Pending<'_, T> {
    /// The answer to a create, an apply or a patch.
    pub(super) fn answered(self, answer: Result<T, ClientError>) -> Result<T, ClientError> {
        match &answer {
            Ok(object) => self.settle(version_of(object).map(Arrival::Version)),
            Err(error) if !error.is_uncertain() => self.settle(None),
            Err(_) => {}
        }
        answer
    }

    /// The object of this UID is gone, or is being deleted.
    pub(super) fn deleted(self, key: &ObjectKey, uid: &str) {
        self.settle(Some(Arrival::Gone { key: key.clone(), uid: uid.into() }));
    }

    /// Nothing was written.
    pub(super) fn refused(self) {
        self.settle(None);
    }

    fn settle(self, arrival: Option<Arrival>) {
        let mut entries = self.journal.0.lock();
        let Some(arrival) = arrival else {
            entries.writes.remove(&self.number);
            return;
        };
        let Some(write) = entries.writes.get_mut(&self.number) else { return };
        if let (Arrival::Version(version), Some(kind)) = (&arrival, &self.kind) {
            crate::cache::AnyKind::wrote(kind.as_ref(), write.namespace.as_deref(), *version);
        }
        write.arrival = Some(arrival);
    }
}
