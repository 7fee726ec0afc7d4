//! Handles with which code outside of reconciles reads a manager's cache.

use std::{
    collections::BTreeSet,
    fmt,
    marker::PhantomData,
    sync::{Arc, Weak},
};

use kubewright_apimachinery::watch;
use serde::Deserialize;
use serde_json::Value;

use super::{Cache, CacheOptions, Inner, Kind, Reader, Unsynced, list_watch::Event};
use crate::object::{AnyObject, KindName, Object};

/// The cache of a manager, which exists while the manager runs. The channel is closed when the manager has ended.
pub(crate) type LateCache = watch::Receiver<Weak<Inner>>;

/// Publishes the cache of a manager to the handles that were taken before.
#[derive(Debug)]
pub(crate) struct CacheSender(watch::Sender<Weak<Inner>>);

impl Default for CacheSender {
    fn default() -> Self {
        Self(watch::Sender::new(Weak::new()))
    }
}

impl CacheSender {
    /// Lets all handles read this cache, until it is dropped.
    pub(crate) fn send(&self, cache: &Cache) {
        self.0.send_replace(Arc::downgrade(&cache.0));
    }

    pub(crate) fn subscribe(&self) -> LateCache {
        self.0.subscribe()
    }
}

/// Reads the objects of one kind from a manager's cache, outside of reconciles: in validators, defaulters, runnables,
/// HTTP handlers, mappers and raw sources. From [`Manager::cached`](crate::manager::Manager::cached), which also
/// declares the kind. Cheap to clone.
///
/// The cache exists while the manager runs, and a kind is readable when it has been listed. Before that,
/// [`Cached::reader`] is an error rather than an empty cache. Reads here wait for no writes: only a reconcile is
/// certain to see the earlier writes of its key.
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
/// # use kubewright_runtime::{cache::Cached, object::ObjectKey};
/// # use kubewright_runtime::webhook::{Denied, Request, ValidationErrors, Validator};
/// struct OnlyInTeams {
///     namespaces: Cached<Namespace>, // manager.cached()
/// }
///
/// impl Validator<ConfigMap> for OnlyInTeams {
///     async fn validate_create(&self, _: &ConfigMap, request: &Request) -> Result<ValidationErrors, Denied> {
///         let namespace = request.namespace.as_deref().unwrap_or_default();
///         let namespace = self.namespaces.reader()?.get(&ObjectKey::cluster(namespace));
///         let labels = namespace.and_then(|namespace| namespace.metadata.labels.clone()).unwrap_or_default();
///         if labels.contains_key("team") { Ok(ValidationErrors::default()) } else { Err(Denied::forbidden("no team")) }
///     }
/// }
///
/// // In a unit test:
/// let validator = OnlyInTeams { namespaces: Cached::fixed([Namespace::default()]) };
/// ```
pub struct Cached<K> {
    cache: LateCache,
    name: Arc<KindName>,
    /// Keeps the cache of [`Cached::fixed`].
    own: Option<Arc<(Cache, CacheSender)>>,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for Cached<K> {
    fn clone(&self) -> Self {
        let Self { cache, name, own, of } = self;
        Self { cache: cache.clone(), name: name.clone(), own: own.clone(), of: *of }
    }
}

impl<K> fmt::Debug for Cached<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("kind", &self.name).finish_non_exhaustive()
    }
}

impl<K: AnyObject> Cached<K> {
    pub(crate) fn new(cache: LateCache, name: KindName) -> Self {
        Self { cache, name: Arc::new(name), own: None, of: PhantomData }
    }

    /// Returns a reader of the objects that the cache has now, and of later ones.
    ///
    /// # Errors
    /// [`Unsynced`] while the manager doesn't run, and until the kind has been listed.
    pub fn reader(&self) -> Result<Reader<K>, Unsynced> {
        let cache = self.cache.has_changed().ok().and_then(|_| self.cache.borrow().upgrade());
        let kind = find(&self.name, cache)?;
        if kind.is_synced() { Ok(Reader::new(kind, None)) } else { Err(kind.lacking()) }
    }

    /// Waits until the kind has been listed. A runnable should wait for this together with its
    /// [cancellation](crate::manager::RunnableContext::cancelled), because a kind that isn't installed is never listed.
    ///
    /// # Errors
    /// [`Unsynced`] if the manager has ended, or was dropped without running.
    pub async fn synced(&self) -> Result<Reader<K>, Unsynced> {
        let kind = synced(&self.name, self.cache.clone()).await?;
        Ok(Reader::new(kind, None))
    }
}

impl<K: Object> Cached<K> {
    /// Returns a handle that reads exactly these objects, for tests of code that has a handle. It has no indexes.
    ///
    /// # Panics
    /// If an object can't be written and read again as a `K`.
    pub fn fixed(objects: impl IntoIterator<Item = K>) -> Self {
        let cache = Cache::new(BTreeSet::new(), CacheOptions::new());
        let write = |object| serde_json::to_value(object).expect("an object that can be written");
        fill(&cache.kind::<K>(), objects.into_iter().map(write).collect());
        let sender = CacheSender::default();
        sender.send(&cache);
        let handle = Self::new(sender.subscribe(), KindName::of::<K>());
        Self { own: Some(Arc::new((cache, sender))), ..handle }
    }
}

fn fill(kind: &Kind, objects: Vec<Value>) {
    let read = |object| Event::InitApply(Deserialize::deserialize(object).expect("an object that can be read"));
    for event in [Event::Init].into_iter().chain(objects.into_iter().map(read)).chain([Event::InitDone]) {
        kind.take(0, event).expect("an object that its type can read");
    }
}

fn find(name: &Arc<KindName>, cache: Option<Arc<Inner>>) -> Result<Arc<Kind>, Unsynced> {
    cache.and_then(|cache| Cache(cache).find(name)).ok_or_else(|| missing(name))
}

fn missing(name: &Arc<KindName>) -> Unsynced {
    Unsynced { kind: KindName::clone(name), reason: "the manager doesn't run".into() }
}

async fn synced(name: &Arc<KindName>, mut cache: LateCache) -> Result<Arc<Kind>, Unsynced> {
    // A sender that is gone has sent all that it ever will.
    let cache = cache.wait_for(|cache| cache.strong_count() > 0).await.map_err(|_| missing(name))?.upgrade();
    let kind = find(name, cache)?;
    // The sender lives as long as the kind.
    let _ = kind.synced().wait_for(|synced| *synced).await;
    Ok(kind)
}
