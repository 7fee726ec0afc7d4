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
mod kind;
mod live;
mod metrics;
#[cfg(test)]
mod model;
mod options;
mod packed;
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
use tokio::task::JoinSet;

pub(crate) use self::{
    delta::{Cause, Delta},
    kind::{Arrival, Kind},
    live::{LiveView, Overlay},
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
    options: CacheOptions,
    kinds: Mutex<IndexMap<Arc<KindName>, Arc<Kind>>>,
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
        Self(Arc::new(Inner { namespaces, options, kinds: Mutex::default() }))
    }

    /// The part of the cache of `K`'s kind, which is made on the first call, and keeps what `K` reads from now on. Call it
    /// before [`Cache::start`].
    pub(crate) fn kind<K: Object>(&self) -> Arc<Kind> {
        self.kind_with::<K>(&(), K::is_namespaced())
    }

    /// [`Cache::kind`] of a kind that may be known only at run time.
    pub(crate) fn kind_with<K: AnyObject>(&self, kind: &K::DynamicType, is_namespaced: bool) -> Arc<Kind> {
        let name = KindName::named::<K>(kind);
        let mut kinds = self.0.kinds.lock();
        let kind = match kinds.get(&name) {
            Some(kind) => kind.clone(),
            None => {
                let plan = self.0.options.of(&name, is_namespaced, &self.0.namespaces);
                let kind = Arc::new(Kind::new(name, plan));
                kinds.insert(kind.name().clone(), kind.clone());
                kind
            }
        };
        kind.declare::<K>();
        kind
    }

    /// A kind, if a controller declared that it uses it.
    pub(crate) fn find(&self, kind: &KindName) -> Option<Arc<Kind>> {
        self.0.kinds.lock().get(kind).cloned()
    }

    /// The kinds of this group and plural, of whatever version: what is written as one shows in the others.
    pub(crate) fn named(&self, name: &KindName) -> Vec<Arc<Kind>> {
        let kinds = self.0.kinds.lock();
        let is_same = |kind: &&Arc<Kind>| (&kind.name().group, &kind.name().plural) == (&name.group, &name.plural);
        kinds.values().filter(is_same).cloned().collect()
    }

    /// Starts a watch for each kind and scope. The tasks end when `tasks` is dropped.
    pub(crate) fn start(&self, client: &Client, random: &Random, metrics: &CacheFamilies, tasks: &mut JoinSet<()>) {
        for kind in self.0.kinds.lock().values() {
            let metrics = metrics.kind(&kind.name().to_string());
            for feed in 0..kind.scopes().len() {
                tasks.spawn(watch::watch(kind.clone(), feed, client.clone(), random.clone(), metrics.clone()));
            }
        }
    }

    /// The kinds that have not had their first complete list, and why.
    pub(crate) fn unsynced(&self) -> Vec<Unsynced> {
        self.0.kinds.lock().values().filter_map(|kind| unsynced(kind)).collect()
    }

    /// Of these kinds, the ones that have not had their first complete list, and why.
    pub(crate) fn unsynced_of(&self, kinds: &BTreeSet<Arc<KindName>>) -> Vec<Unsynced> {
        let kinds = kinds.iter().filter_map(|kind| self.find(kind));
        kinds.filter_map(|kind| unsynced(kind.as_ref())).collect()
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
            .map_err(|_| NotSynced(kinds.iter().filter_map(|kind| unsynced(kind)).collect()))
    }
}

fn unsynced(kind: &Kind) -> Option<Unsynced> {
    let reason = || kind.failure().unwrap_or_else(|| "still listing".into());
    (!kind.is_synced()).then(|| Unsynced { kind: kind.name().as_ref().clone(), reason: reason() })
}
