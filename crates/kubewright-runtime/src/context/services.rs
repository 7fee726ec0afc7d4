//! The parts of a manager that all reconciles of one controller share.

use std::{any::TypeId, collections::BTreeSet, sync::Arc};

use indexmap::IndexMap;
use kubewright_apimachinery::{clock::SharedClock, random::Random};

use super::{dynamic_watches::DynamicWatches, undeclared::UndeclaredReads};
use crate::{
    cache::{Cache, Kind, Overlay},
    client::Client,
    event::Recorder,
    object::KindName,
};

/// The parts of a manager that all reconciles of one controller share.
#[derive(Debug)]
pub(crate) struct Services {
    /// The name under which the controller appears, which has that of the cluster in it.
    pub(crate) controller: String,
    /// The name that the controller was given.
    pub(crate) plain_name: String,
    /// The name of the cluster, unless it is the manager's own.
    pub(crate) cluster: Option<Arc<str>>,
    pub(crate) api: Client,
    pub(crate) cache: Cache,
    /// The kinds that the controller declared.
    pub(crate) kinds: BTreeSet<Arc<KindName>>,
    /// The types that the controller declared for its kinds, and may read from the cache.
    pub(crate) types: BTreeSet<(Arc<KindName>, TypeId)>,
    /// Whether children block the deletion of their owner.
    pub(crate) blocks_deletion: bool,
    /// The reads of other types, which are errors.
    pub(crate) undeclared: UndeclaredReads,
    /// The kinds that reconciles watch in addition.
    pub(crate) watches: DynamicWatches,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) recorder: Recorder,
}

impl Services {
    /// Returns the informers through which the controller reads objects of a kind in this namespace. An object may be
    /// cached in several versions of its kind, each with a watch of its own.
    pub(crate) fn informers_of(&self, kind: &KindName, namespace: Option<&str>) -> Vec<Arc<Kind>> {
        let mut informers = self.cache.named(kind);
        let is_read = |name: &Arc<KindName>| self.kinds.contains(name) || self.watches.contains(name);
        informers.retain(|kind| is_read(kind.name()) && kind.covers(namespace));
        informers
    }
}

/// The kinds that were read live for one run, because the cache was behind.
pub(crate) type LiveViews = IndexMap<Arc<KindName>, Arc<Overlay>>;
