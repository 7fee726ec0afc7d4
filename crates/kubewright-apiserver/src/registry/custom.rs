//! The entries of custom resources, which come and go with their definitions.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::resource::Resource;

/// The custom resources that are served at the moment. Readers see one state of all and lock nothing.
#[derive(Debug, Default)]
pub(crate) struct CustomResources {
    entries: ArcSwap<Vec<Arc<Resource>>>,
    changed: watch::Sender<()>,
}

impl CustomResources {
    /// A snapshot of all entries.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<Resource>>> {
        self.entries.load_full()
    }

    /// The first entry that matches.
    pub(crate) fn find(&self, matches: impl Fn(&Resource) -> bool) -> Option<Arc<Resource>> {
        self.entries.load().iter().find(|entry| matches(entry)).cloned()
    }

    /// Replaces all entries of a stored resource (`group/plural`) in one step; an empty list stops serving it.
    pub(crate) fn replace(&self, storage: &str, entries: Vec<Resource>) {
        let entries: Vec<_> = entries.into_iter().map(Arc::new).collect();
        self.entries.rcu(|present| {
            let others = present.iter().filter(|entry| &*entry.storage != storage);
            others.chain(&entries).cloned().collect::<Vec<_>>()
        });
        self.changed.send_replace(());
    }

    /// A receiver that is notified of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
