//! The cache: one per manager, shared by all controllers.
//!
//! Each kind has one informer: one watch for each namespace scope and one copy of each object, shared by all
//! controllers and types that read the kind. Objects are kept packed, without managed fields and without the fields
//! that none of these types reads (see [`crate::view`]). Watch events become changes of the store in a state machine
//! without I/O. An object that can't be decoded as one of the types is reported and ignored; the others arrive.
//!
//! The cache writes nothing and waits for nothing but its own watches: the read-your-writes barrier
//! ([`crate::controller`]) compares the expected states with its content.

mod cached;
mod codec;
mod decoded;
mod delta;
mod expected;
mod informers;
mod kind;
mod list_watch;
mod live;
mod metrics;
#[cfg(test)]
mod model;
mod options;
mod overlay;
mod reader;
mod scope;
#[cfg(test)]
mod script;
mod store;
mod sync;
mod sync_check;
mod watch;
mod watch_state;

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use indexmap::IndexMap;
use kube::Client;
use kubewright_apimachinery::random::Random;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use self::informers::Start;
pub(crate) use self::{
    cached::CacheSender,
    delta::{Cause, Delta},
    expected::{ExpectedState, ObjectSet},
    informers::InformerSet,
    kind::{Handler, Kind, Listener},
    live::LiveView,
    metrics::CacheFamilies,
    overlay::Overlay,
    sync::NotSynced,
    sync_check::SyncCheck,
};
pub use self::{
    cached::Cached,
    options::{CacheOptions, KindOptions, NamespaceOptions},
    reader::Reader,
    sync::Unsynced,
};
use crate::object::{AnyObject, KindName, KindScope, Object};

/// The cached kinds. Clones share them.
#[derive(Clone)]
pub(crate) struct Cache(Arc<Inner>);

pub(crate) struct Inner {
    namespaces: BTreeSet<String>,
    options: CacheOptions,
    kinds: Mutex<IndexMap<Arc<KindName>, CachedKind>>,
    starts: mpsc::UnboundedSender<Start>,
    /// The receiver of `starts`, until the cache is started.
    started: Mutex<Option<mpsc::UnboundedReceiver<Start>>>,
}

/// A kind in the cache.
struct CachedKind {
    kind: Arc<Kind>,
    /// Whether a controller declared the kind, which then stays.
    is_declared: bool,
    /// The number of controllers whose reconcilers watch the kind.
    watchers: usize,
    until: CancellationToken,
}

/// Drops the handlers of all kinds when it is dropped. They have queues, whose controllers have the cache: without an
/// end they would keep each other, also when the future of the manager is dropped.
struct Release(Cache);

impl Drop for Release {
    fn drop(&mut self) {
        let kinds = self.0.0.kinds.lock().values().map(|cached| cached.kind.clone()).collect::<Vec<_>>();
        kinds.iter().for_each(|kind| kind.release());
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.0.kinds.lock().keys().map(ToString::to_string).collect::<Vec<_>>();
        f.debug_struct("Cache").field("kinds", &kinds).finish_non_exhaustive()
    }
}

impl Cache {
    /// Returns an empty cache that will watch these namespaces, or all of them if the set is empty.
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

    /// Returns the informer of `K`'s kind, which is created by the first call, and keeps the fields that `K` reads.
    /// Must be called before [`Cache::start`].
    pub(crate) fn kind<K: Object>(&self) -> Arc<Kind> {
        self.kind_with::<K>(&(), K::is_namespaced())
    }

    /// [`Cache::kind`] for a kind that may be known only at run time.
    pub(crate) fn kind_with<K: AnyObject>(&self, kind: &K::DynamicType, is_namespaced: bool) -> Arc<Kind> {
        self.enter::<K>(kind, is_namespaced, |cached| {
            cached.is_declared = true;
            cached.kind.declare::<K>();
        })
    }

    /// Watches a kind until [`Cache::unwatch`] is called as often, also while the cache runs. [`Kind::declare_late`]
    /// tells when objects have all fields that `K` reads.
    pub(crate) fn watch<K: AnyObject>(&self, kind: &K::DynamicType, is_namespaced: bool) -> Arc<Kind> {
        self.enter::<K>(kind, is_namespaced, |cached| cached.watchers += 1)
    }

    /// Undoes one [`Cache::watch`]. When no controller watches or declares the kind any more, its watch ends and its
    /// objects are dropped.
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
        enter: impl FnOnce(&mut CachedKind),
    ) -> Arc<Kind> {
        let name = KindName::named::<K>(kind);
        let mut kinds = self.0.kinds.lock();
        if let Some(cached) = kinds.get_mut(&name) {
            enter(cached);
            return cached.kind.clone();
        }
        let mut plan = self.0.options.of(&name, is_namespaced, &self.0.namespaces);
        let is_limited = plan.scopes.iter().any(|(namespace, _)| namespace.is_some());
        plan.needs_discovery = is_limited && KindScope::of::<K>() == KindScope::Unknown;
        let (kind, until) = (Arc::new(Kind::new(name, plan)), CancellationToken::new());
        // Declared before the watch begins, so that it needn't list twice.
        kind.declare::<K>();
        // Fails when the cache has ended.
        let _ = self.0.starts.send(Start { kind: kind.clone(), until: until.clone() });
        let mut cached = CachedKind { kind: kind.clone(), is_declared: false, watchers: 0, until };
        enter(&mut cached);
        kinds.insert(kind.name().clone(), cached);
        kind
    }

    /// Returns the informer of a kind, if a controller uses the kind.
    pub(crate) fn find(&self, kind: &KindName) -> Option<Arc<Kind>> {
        self.0.kinds.lock().get(kind).map(|cached| cached.kind.clone())
    }

    /// Returns the informers with this group and plural, in any version: a write in one version shows in the others.
    pub(crate) fn named(&self, name: &KindName) -> Vec<Arc<Kind>> {
        let kinds = self.0.kinds.lock();
        let is_same = |kind: &&Arc<Kind>| (&kind.name().group, &kind.name().plural) == (&name.group, &name.plural);
        kinds.values().map(|cached| &cached.kind).filter(is_same).cloned().collect()
    }

    /// Starts a watch for each kind and scope, also for kinds that are added later. Their log lines are in the span.
    pub(crate) fn start(&self, client: &Client, random: &Random, metrics: CacheFamilies, span: Span) -> InformerSet {
        let starts = self.0.started.lock().take().unwrap_or_else(|| mpsc::unbounded_channel().1);
        InformerSet::start(starts, client.clone(), random.clone(), metrics, span, Release(self.clone()))
    }

    /// Returns the declared kinds without a first complete list, with the reason.
    pub(crate) fn unsynced(&self) -> Vec<Unsynced> {
        let kinds = self.0.kinds.lock();
        kinds.values().filter(|cached| cached.is_declared).filter_map(|cached| cached.kind.unsynced()).collect()
    }

    /// Returns those of these kinds that have no first complete list, with the reason.
    pub(crate) fn unsynced_of(&self, kinds: &BTreeSet<Arc<KindName>>) -> Vec<Unsynced> {
        let kinds = kinds.iter().filter_map(|kind| self.find(kind));
        kinds.filter_map(|kind| kind.unsynced()).collect()
    }

    /// Waits until each of these kinds has had its first complete list.
    ///
    /// # Errors
    /// After `timeout`, with the missing kinds and the reasons. The watches continue.
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
