//! The cache: one per manager, shared by all controllers.
//!
//! Each kind is watched once in each namespace scope, however many controllers use it, and kept as `Arc<K>` without its
//! managed fields. A feed turns watch events into changes of the store; both are pure. The watch
//! itself is kube's. An object that can't be decoded is reported and left out; the others arrive.
//!
//! It doesn't write, and it never waits for anything but its own watches: the read-your-writes barrier
//! ([`crate::controller`]) asks it what has arrived.

mod cause;
mod decode;
mod feed;
mod kind;
mod metrics;
mod reader;
mod store;
mod watch;

use std::{any::TypeId, collections::BTreeSet, fmt, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use indexmap::IndexMap;
use kube::Client;
use kubewright_apimachinery::random::Random;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::task::JoinSet;

pub use self::reader::Reader;
pub(crate) use self::{
    cause::Cause,
    kind::{AnyKind, Arrival, Delta, Kind},
    metrics::CacheFamilies,
};

use crate::object::{KindName, Object};

/// Kinds whose first list has not come in time.
#[derive(Debug, Error)]
#[error("the cache is not filled: {}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub(crate) struct NotSynced(pub(crate) Vec<Unsynced>);

/// One kind whose first list has not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsynced {
    kind: KindName,
    /// What failed last: a role that is missing, a CRD that isn't installed, a connection refused.
    reason: String,
}

impl fmt::Display for Unsynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.reason)
    }
}

/// The cached kinds. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Cache(Arc<Inner>);

#[derive(Default)]
struct Inner {
    namespaces: BTreeSet<String>,
    kinds: Mutex<IndexMap<TypeId, Entry>>,
}

struct Entry {
    kind: Arc<dyn AnyKind>,
    feeds: StartFeeds,
}

/// Makes the tasks that feed a kind, with its type still known.
type StartFeeds = Box<dyn Fn(&Client, &Random, &CacheFamilies) -> Vec<BoxFuture<'static, ()>> + Send + Sync>;

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.0.kinds.lock().values().map(|entry| entry.kind.name().to_string()).collect::<Vec<_>>();
        f.debug_struct("Cache").field("kinds", &kinds).finish_non_exhaustive()
    }
}

impl Cache {
    /// An empty cache that will watch these namespaces, or all of them if there are none.
    pub(crate) fn new(namespaces: BTreeSet<String>) -> Self {
        Self(Arc::new(Inner { namespaces, kinds: Mutex::default() }))
    }

    /// The kind's part of the cache, which is made on the first call. Call it before [`Cache::start`].
    pub(crate) fn kind<K: Object>(&self) -> Arc<Kind<K>> {
        if let Some(kind) = self.find() {
            return kind;
        }
        let kind = Arc::new(Kind::<K>::new(&self.0.namespaces));
        let watched = kind.clone();
        let feeds: StartFeeds = Box::new(move |client, random, metrics| {
            let metrics = metrics.kind(&watched.name().to_string());
            let watch =
                |feed| watch::watch(watched.clone(), feed, client.clone(), random.clone(), metrics.clone()).boxed();
            (0..watched.scopes().len()).map(watch).collect()
        });
        self.0.kinds.lock().insert(Kind::<K>::id(), Entry { kind: kind.clone(), feeds });
        kind
    }

    pub(crate) fn find<K: Object>(&self) -> Option<Arc<Kind<K>>> {
        let kind = self.any_kind(Kind::<K>::id())?;
        kind.as_any().downcast().ok()
    }

    pub(crate) fn any_kind(&self, id: TypeId) -> Option<Arc<dyn AnyKind>> {
        self.0.kinds.lock().get(&id).map(|entry| entry.kind.clone())
    }

    /// All that is kept of a kind, in whatever type and version it was declared.
    pub(crate) fn named(&self, name: &KindName) -> Vec<(TypeId, Arc<dyn AnyKind>)> {
        let kinds = self.0.kinds.lock();
        let is_same = |known: &KindName| (&known.group, &known.plural) == (&name.group, &name.plural);
        let same = kinds.iter().filter(|(_, entry)| is_same(entry.kind.name()));
        same.map(|(id, entry)| (*id, entry.kind.clone())).collect()
    }

    /// Reads of a kind, if a controller declared that it uses it.
    pub(crate) fn reader<K: Object>(&self) -> Option<Reader<K>> {
        self.find().map(Reader::new)
    }

    /// Starts a watch for each kind and scope. The tasks end when `tasks` is dropped.
    pub(crate) fn start(&self, client: &Client, random: &Random, metrics: &CacheFamilies, tasks: &mut JoinSet<()>) {
        for entry in self.0.kinds.lock().values() {
            for feed in (entry.feeds)(client, random, metrics) {
                tasks.spawn(feed);
            }
        }
    }

    /// The kinds that have not had their first complete list, and why.
    pub(crate) fn unsynced(&self) -> Vec<Unsynced> {
        self.0.kinds.lock().values().filter_map(|entry| unsynced(entry.kind.as_ref())).collect()
    }

    /// Of these kinds, the ones that have not had their first complete list, and why.
    pub(crate) fn unsynced_of(&self, kinds: &BTreeSet<TypeId>) -> Vec<Unsynced> {
        let kinds = kinds.iter().filter_map(|id| self.any_kind(*id));
        kinds.filter_map(|kind| unsynced(kind.as_ref())).collect()
    }

    /// Waits until each of these kinds has had its first complete list.
    ///
    /// # Errors
    /// After `timeout`, with the kinds that are missing and what failed. The watches go on all the same.
    pub(crate) async fn wait_for_sync(&self, kinds: &BTreeSet<TypeId>, timeout: Duration) -> Result<(), NotSynced> {
        let kinds = kinds.iter().filter_map(|id| self.any_kind(*id)).collect::<Vec<_>>();
        let all = async {
            for kind in &kinds {
                // The sender lives as long as the kind.
                let _ = kind.synced().wait_for(|synced| *synced).await;
            }
        };
        tokio::time::timeout(timeout, all)
            .await
            .map_err(|_| NotSynced(kinds.iter().filter_map(|kind| unsynced(kind.as_ref())).collect()))
    }
}

fn unsynced(kind: &dyn AnyKind) -> Option<Unsynced> {
    let reason = || kind.failure().unwrap_or_else(|| "still listing".into());
    (!kind.is_synced()).then(|| Unsynced { kind: kind.name().clone(), reason: reason() })
}
