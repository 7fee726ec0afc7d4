//! The cache: one per manager, shared by all controllers.
//!
//! Each kind is watched once in each namespace scope, however many controllers and types read it, and kept once: packed,
//! without managed fields, and without what none of those types reads (see [`crate::view`]). A feed turns watch events
//! into changes of the store; both are pure. The watch itself is kube's. An object that can't be decoded, as one of the
//! types that read its kind, is reported and left out; the others arrive.
//!
//! It doesn't write, and it never waits for anything but its own watches: the read-your-writes barrier
//! ([`crate::controller`]) asks it what has arrived.

mod delta;
mod feed;
mod fresh;
mod keeper;
mod kind;
mod list_watch;
mod live;
mod metrics;
#[cfg(test)]
mod model;
mod options;
mod proof;
mod reader;
mod store;
mod watch;

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use indexmap::IndexMap;
use kube::Client;
use kubewright_apimachinery::random::Random;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::keeper::Start;
pub(crate) use self::{
    delta::{Cause, Delta},
    keeper::Watches,
    kind::{Arrival, Handler, Kind, Listener},
    live::{LiveView, Objects, Overlay},
    metrics::CacheFamilies,
    proof::Proof,
};
pub use self::{
    options::{CacheOptions, KindOptions, NamespaceOptions},
    reader::Reader,
};

use crate::{
    client::AnyObject,
    object::{KindName, Object},
};

/// Kinds whose first list has not come in time.
#[derive(Debug, Error)]
#[error("the cache is not filled: {}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub(crate) struct NotSynced(pub(crate) Vec<Unsynced>);

/// One kind whose first list has not come.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}: {reason}")]
#[non_exhaustive]
pub struct Unsynced {
    /// The kind.
    pub kind: KindName,
    /// What failed last: a role that is missing, a CRD that isn't installed, a connection refused.
    pub reason: String,
}

/// The cached kinds. Clones share them.
#[derive(Clone)]
pub(crate) struct Cache(Arc<Inner>);

struct Inner {
    namespaces: BTreeSet<String>,
    options: CacheOptions,
    kinds: Mutex<IndexMap<Arc<KindName>, Cached>>,
    starts: mpsc::UnboundedSender<Start>,
    /// Until the cache is started.
    started: Mutex<Option<mpsc::UnboundedReceiver<Start>>>,
}

/// A kind in the cache.
struct Cached {
    kind: Arc<Kind>,
    /// Whether a controller declared it, so that it stays.
    is_declared: bool,
    /// How many controllers watch it as their reconciles ask.
    watchers: usize,
    until: CancellationToken,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.0.kinds.lock().keys().map(ToString::to_string).collect::<Vec<_>>();
        f.debug_struct("Cache").field("kinds", &kinds).finish_non_exhaustive()
    }
}

impl Cache {
    /// An empty cache that will watch these namespaces, or all of them if there are none.
    pub(crate) fn new(namespaces: BTreeSet<String>, options: CacheOptions) -> Self {
        let (starts, started) = mpsc::unbounded_channel();
        Self(Arc::new(Inner {
            namespaces,
            options,
            kinds: Mutex::default(),
            starts,
            started: Mutex::new(Some(started)),
        }))
    }

    /// The part of the cache of `K`'s kind, which is made on the first call, and keeps what `K` reads from now on. Call it
    /// before [`Cache::start`].
    pub(crate) fn kind<K: Object>(&self) -> Arc<Kind> {
        self.kind_with::<K>(&(), K::is_namespaced())
    }

    /// [`Cache::kind`] of a kind that may be known only at run time.
    pub(crate) fn kind_with<K: AnyObject>(&self, kind: &K::DynamicType, is_namespaced: bool) -> Arc<Kind> {
        self.enter::<K>(kind, is_namespaced, |cached| {
            cached.is_declared = true;
            cached.kind.declare::<K>();
        })
    }

    /// Watches a kind until [`Cache::unwatch`] is called as often, also while the cache runs. When objects show all that `K`
    /// reads is for [`Kind::declare_late`] to say.
    pub(crate) fn watch<K: AnyObject>(&self, kind: &K::DynamicType, is_namespaced: bool) -> Arc<Kind> {
        self.enter::<K>(kind, is_namespaced, |cached| cached.watchers += 1)
    }

    /// Undoes one [`Cache::watch`]. A kind that nobody wants any more is forgotten, and its watch ends.
    pub(crate) fn unwatch(&self, kind: &KindName) {
        let mut kinds = self.0.kinds.lock();
        let Some(cached) = kinds.get_mut(kind) else { return };
        cached.watchers = cached.watchers.saturating_sub(1);
        if cached.watchers == 0 && !cached.is_declared {
            cached.until.cancel();
            cached.kind.end();
            kinds.shift_remove(kind);
        }
    }

    fn enter<K: AnyObject>(
        &self,
        kind: &K::DynamicType,
        is_namespaced: bool,
        enter: impl FnOnce(&mut Cached),
    ) -> Arc<Kind> {
        let name = KindName::named::<K>(kind);
        let mut kinds = self.0.kinds.lock();
        if let Some(cached) = kinds.get_mut(&name) {
            enter(cached);
            return cached.kind.clone();
        }
        let plan = self.0.options.of(&name, is_namespaced, &self.0.namespaces);
        let (kind, until) = (Arc::new(Kind::new(name, plan)), CancellationToken::new());
        // Before its watch begins, so that it needn't begin anew.
        kind.declare::<K>();
        // Unless the cache has ended.
        let _ = self.0.starts.send(Start { kind: kind.clone(), until: until.clone() });
        let mut cached = Cached { kind: kind.clone(), is_declared: false, watchers: 0, until };
        enter(&mut cached);
        kinds.insert(kind.name().clone(), cached);
        kind
    }

    /// A kind, if a controller uses it.
    pub(crate) fn find(&self, kind: &KindName) -> Option<Arc<Kind>> {
        self.0.kinds.lock().get(kind).map(|cached| cached.kind.clone())
    }

    /// The kinds of this group and plural, of whatever version: what is written as one shows in the others.
    pub(crate) fn named(&self, name: &KindName) -> Vec<Arc<Kind>> {
        let kinds = self.0.kinds.lock();
        let is_same = |kind: &&Arc<Kind>| (&kind.name().group, &kind.name().plural) == (&name.group, &name.plural);
        kinds.values().map(|cached| &cached.kind).filter(is_same).cloned().collect()
    }

    /// Starts a watch for each kind and scope, now and when a kind is added.
    pub(crate) fn start(&self, client: &Client, random: &Random, metrics: CacheFamilies) -> Watches {
        let starts = self.0.started.lock().take().unwrap_or_else(|| mpsc::unbounded_channel().1);
        Watches::start(starts, client.clone(), random.clone(), metrics)
    }

    /// The declared kinds that have not had their first complete list, and why.
    pub(crate) fn unsynced(&self) -> Vec<Unsynced> {
        let kinds = self.0.kinds.lock();
        kinds.values().filter(|cached| cached.is_declared).filter_map(|cached| cached.kind.unsynced()).collect()
    }

    /// Of these kinds, the ones that have not had their first complete list, and why.
    pub(crate) fn unsynced_of(&self, kinds: &BTreeSet<Arc<KindName>>) -> Vec<Unsynced> {
        let kinds = kinds.iter().filter_map(|kind| self.find(kind));
        kinds.filter_map(|kind| kind.unsynced()).collect()
    }

    /// Waits until each of these kinds has had its first complete list.
    ///
    /// # Errors
    /// After `timeout`, with the kinds that are missing and what failed. The watches go on all the same.
    pub(crate) async fn wait_for_sync(
        &self,
        kinds: &BTreeSet<Arc<KindName>>,
        timeout: Duration,
    ) -> Result<(), NotSynced> {
        let kinds = kinds.iter().filter_map(|kind| self.find(kind)).collect::<Vec<_>>();
        let all = async {
            for kind in &kinds {
                // The sender lives as long as the kind.
                let _ = kind.synced().wait_for(|synced| *synced).await;
            }
        };
        tokio::time::timeout(timeout, all)
            .await
            .map_err(|_| NotSynced(kinds.iter().filter_map(|kind| kind.unsynced()).collect()))
    }
}
