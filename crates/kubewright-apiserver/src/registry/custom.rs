//! The entries of custom resources, which are added and removed with their CRDs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::resource::Resource;

/// The custom resources that are currently served. Readers get a consistent snapshot without locking.
#[derive(Debug, Default)]
pub(crate) struct CustomResources {
    entries: ArcSwap<Vec<Arc<Resource>>>,
    changed: watch::Sender<()>,
}

impl CustomResources {
    /// Returns a snapshot of all entries.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<Resource>>> {
        self.entries.load_full()
    }

    /// Returns the first matching entry.
    pub(crate) fn find(&self, matches: impl Fn(&Resource) -> bool) -> Option<Arc<Resource>> {
        self.entries.load().iter().find(|entry| matches(entry)).cloned()
    }

    /// Atomically replaces all entries of a stored resource (`group/plural`). An empty list stops serving it.
    pub(crate) fn replace(&self, storage: &str, entries: Vec<Resource>) {
        let entries: Vec<_> = entries.into_iter().map(Arc::new).collect();
        self.entries.rcu(|present| {
            let others = present.iter().filter(|entry| &*entry.storage != storage);
            others.chain(&entries).cloned().collect::<Vec<_>>()
        });
        self.changed.send_replace(());
    }

    /// Returns a receiver that is notified of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
