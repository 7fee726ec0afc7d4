//! The entries of custom resources, which are added and removed with their CRDs.

use std::sync::Arc;

use kubewright_apimachinery::watch;
use parking_lot::RwLock;

use super::{entries::Entries, resource::Resource};

/// The custom resources that are currently served. Readers get a consistent snapshot.
#[derive(Debug, Default)]
pub(crate) struct CustomResources {
    entries: RwLock<Arc<Entries>>,
    changed: watch::Sender<()>,
}

impl CustomResources {
    /// Returns a snapshot of all entries.
    pub(crate) fn entries(&self) -> Arc<Entries> {
        self.entries.read().clone()
    }

    /// Returns the first matching entry.
    pub(crate) fn find(&self, matches: impl Fn(&Resource) -> bool) -> Option<Arc<Resource>> {
        self.entries().all().iter().find(|entry| matches(entry)).cloned()
    }

    /// Atomically replaces all entries of a stored resource (`group/plural`). An empty list stops serving it.
    pub(crate) fn replace(&self, storage: &str, entries: Vec<Resource>) {
        let mut present = self.entries.write();
        let others = present.all().iter().filter(|entry| &*entry.storage != storage).cloned();
        let all: Vec<_> = others.chain(entries.into_iter().map(Arc::new)).collect();
        *present = Arc::new(all.into());
        drop(present);
        self.changed.send_replace(());
    }

    /// Returns a receiver that is notified of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
