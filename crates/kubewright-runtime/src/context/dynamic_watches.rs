//! Kinds that reconciles watch with [`Context::watch`](crate::context::Context::watch): each as long as the last run of
//! some key requested it. No I/O: the cache starts and ends the watches.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use parking_lot::Mutex;
use tracing::{debug, error};

use crate::{
    cache::{Cache, Cause, Delta, Handler, Kind, Listener, Unsynced},
    object::{AnyObject, KindName, ObjectKey},
    predicate::Change,
};

/// Enqueues a key because of a change, with the priority that a mapper has given, if it has.
pub(crate) type Enqueue = Arc<dyn Fn(ObjectKey, Option<i32>, &Delta<'_>) + Send + Sync>;

/// Enqueues a key because the first list of a kind is complete. Without a key it only wakes the controller's loop.
pub(crate) type Notify = Arc<dyn Fn(Option<&ObjectKey>, &KindName) + Send + Sync>;

/// The changes that enqueue a key.
enum Filter {
    /// Changes of one object.
    Object(ObjectKey),
    /// Changes for which the function returns true.
    Passing(Box<dyn Fn(&Delta<'_>) -> bool + Send + Sync>),
}

/// A reconcile's request to watch objects of a kind.
pub(crate) enum WatchRequest<T> {
    /// One object.
    Object(ObjectKey),
    /// The objects for which the function returns true, before or after a change.
    Passing(Box<dyn Fn(&T) -> bool + Send + Sync>),
}

impl<T: AnyObject> From<WatchRequest<T>> for Filter {
    fn from(request: WatchRequest<T>) -> Self {
        match request {
            WatchRequest::Object(key) => Self::Object(key),
            WatchRequest::Passing(passes) => Self::Passing(Box::new(move |delta| {
                let passes = |change: Change<'_, T>| passes(change.object()) || change.old().is_some_and(&passes);
                delta.with(passes).unwrap_or_default()
            })),
        }
    }
}

/// The kinds that the keys of one controller watch.
pub(crate) struct DynamicWatches {
    cache: Cache,
    enqueue: Enqueue,
    notify: Notify,
    kinds: Mutex<BTreeMap<Arc<KindName>, WatchedKind>>,
}

/// A watched kind.
struct WatchedKind {
    kind: Arc<Kind>,
    requests: Arc<Mutex<Requests>>,
    handler: Handler,
    listener: Listener,
}

/// The watch requests for one kind.
#[derive(Default)]
struct Requests {
    keys: BTreeMap<ObjectKey, KeyRequests>,
    /// The keys that watch an object, by the object.
    by_object: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// The keys with a function to be called for each change.
    by_function: BTreeSet<ObjectKey>,
    /// The keys that wait for the kind to be complete, with the generation that they need.
    waiting: BTreeMap<ObjectKey, u64>,
}

/// The requests of one key.
#[derive(Default)]
struct KeyRequests {
    /// Those of the last run that succeeded.
    succeeded: Vec<Filter>,
    /// Those of a later run that failed, perhaps before its last request.
    failed: Vec<Filter>,
    /// Those of the current run.
    current: Vec<Filter>,
}

impl fmt::Debug for DynamicWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.kinds.lock().keys().map(ToString::to_string).collect::<Vec<_>>();
        f.debug_struct("DynamicWatches").field("kinds", &kinds).finish_non_exhaustive()
    }
}

impl DynamicWatches {
    pub(crate) fn new(cache: Cache, enqueue: Enqueue, notify: Notify) -> Self {
        Self { cache, enqueue, notify, kinds: Mutex::default() }
    }

    /// Adds a request of the key's current run. Returns the kind's informer once it is complete.
    pub(crate) fn watch<T: AnyObject>(
        &self,
        (of, is_namespaced): (&T::DynamicType, bool),
        key: &ObjectKey,
        request: WatchRequest<T>,
    ) -> Result<Arc<Kind>, Unsynced> {
        let mut kinds = self.kinds.lock();
        let watched = kinds.entry(Arc::new(KindName::named::<T>(of))).or_insert_with_key(|name| {
            debug!(kind = %name, "watching a kind that a reconcile requests");
            self.listen(self.cache.watch::<T>(of, is_namespaced))
        });
        let WatchedKind { kind, requests, .. } = watched;
        let generation = kind.declare_late::<T>();
        let mut requests = requests.lock();
        requests.add(key, request.into());
        if kind.is_complete(generation) {
            return Ok(kind.clone());
        }
        requests.waiting.insert(key.clone(), generation);
        Err(kind.lacking())
    }

    fn listen(&self, kind: Arc<Kind>) -> WatchedKind {
        let requests = Arc::new(Mutex::new(Requests::default()));
        let (matching, enqueue) = (requests.clone(), self.enqueue.clone());
        let handler = kind.on_change(move |delta| {
            // Keys that wait for the first list are enqueued at its end.
            if delta.cause != Cause::FirstList {
                let keys = matching.lock().matching(delta);
                keys.into_iter().for_each(|key| enqueue(key, None, delta));
            }
        });
        let (waiting, notify, of) = (requests.clone(), self.notify.clone(), Arc::downgrade(&kind));
        let listener: Listener = Arc::new(move || {
            let Some(kind) = of.upgrade() else { return };
            // The barrier may wait for the state that has just arrived.
            notify(None, kind.name());
            let complete = waiting.lock().take_complete(|generation| kind.is_complete(generation));
            complete.iter().for_each(|key| notify(Some(key), kind.name()));
        });
        kind.on_advance(listener.clone());
        WatchedKind { kind, requests, handler, listener }
    }

    /// Ends the current run of the key. If it has succeeded, watches that it didn't request end.
    pub(crate) fn end_run(&self, key: &ObjectKey, has_succeeded: bool) {
        self.kinds.lock().retain(|name, watched| {
            let is_wanted = watched.requests.lock().end_run(key, has_succeeded);
            if !is_wanted {
                debug!(kind = %name, "no reconcile requests the kind any more");
                self.end(name, watched);
            }
            is_wanted
        });
    }

    fn end(&self, name: &KindName, watched: &WatchedKind) {
        watched.kind.off_change(&watched.handler);
        watched.kind.off_advance(&watched.listener);
        self.cache.unwatch(name);
    }

    /// Ends all watches, when the controller has ended.
    pub(crate) fn end_all(&self) {
        let kinds = std::mem::take(&mut *self.kinds.lock());
        kinds.iter().for_each(|(name, watched)| self.end(name, watched));
    }

    /// Returns whether a kind is watched.
    pub(crate) fn contains(&self, kind: &KindName) -> bool {
        self.kinds.lock().contains_key(kind)
    }

    /// Returns the watched kinds.
    pub(crate) fn kinds(&self) -> Vec<Arc<Kind>> {
        self.kinds.lock().values().map(|watched| watched.kind.clone()).collect()
    }
}

impl Requests {
    fn add(&mut self, key: &ObjectKey, filter: Filter) {
        match &filter {
            Filter::Object(object) => {
                self.by_object.entry(object.clone()).or_default().insert(key.clone());
            }
            Filter::Passing(_) => {
                self.by_function.insert(key.clone());
            }
        }
        self.keys.entry(key.clone()).or_default().current.push(filter);
    }

    /// Returns the keys that a change enqueues.
    fn matching(&self, delta: &Delta<'_>) -> BTreeSet<ObjectKey> {
        let by_object = self.by_object.get(delta.object).into_iter().flatten();
        let by_function = self
            .by_function
            .iter()
            .filter(|key| self.keys.get(key).is_some_and(|requests| requests.match_delta(delta)));
        by_object.chain(by_function).cloned().collect()
    }

    /// Removes and returns the waiting keys for which the kind is complete.
    fn take_complete(&mut self, is_complete: impl Fn(u64) -> bool) -> Vec<ObjectKey> {
        let keys = self.waiting.extract_if(.., |_, generation| is_complete(*generation));
        keys.map(|(key, _)| key).collect()
    }

    /// Ends the current run of the key. Returns whether any request is left.
    fn end_run(&mut self, key: &ObjectKey, has_succeeded: bool) -> bool {
        if let Some(requests) = self.keys.get_mut(key) {
            let current = std::mem::take(&mut requests.current);
            let ended = match has_succeeded {
                true => {
                    let succeeded = KeyRequests { succeeded: current, ..KeyRequests::default() };
                    std::mem::replace(requests, succeeded).into_filters()
                }
                false => std::mem::replace(&mut requests.failed, current),
            };
            for object in ended.iter().filter_map(Filter::object).filter(|object| !requests.contain(object)) {
                if let Some(keys) = self.by_object.get_mut(object) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.by_object.remove(object);
                    }
                }
            }
            if requests.filters().all(|filter| filter.object().is_some()) {
                self.by_function.remove(key);
            }
            if requests.filters().next().is_none() {
                self.keys.remove(key);
                self.waiting.remove(key);
            }
        }
        !self.keys.is_empty()
    }
}

impl Filter {
    fn object(&self) -> Option<&ObjectKey> {
        match self {
            Self::Object(object) => Some(object),
            Self::Passing(_) => None,
        }
    }
}

impl KeyRequests {
    fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.succeeded.iter().chain(&self.failed).chain(&self.current)
    }

    fn into_filters(self) -> Vec<Filter> {
        [self.succeeded, self.failed, self.current].into_iter().flatten().collect()
    }

    /// Returns whether the object is requested by its key.
    fn contain(&self, object: &ObjectKey) -> bool {
        self.filters().any(|filter| filter.object() == Some(object))
    }

    /// Returns whether a function matches the change.
    fn match_delta(&self, delta: &Delta<'_>) -> bool {
        let passes = |filter: &Filter| {
            let Filter::Passing(passes) = filter else { return false };
            // The function belongs to the operator: a panic in it must not affect other keys.
            catch_unwind(AssertUnwindSafe(|| passes(delta))).unwrap_or_else(|_| {
                error!(kind = %delta.kind, object = %delta.object, "the filter of a watch panicked: the change counts as matching");
                true
            })
        };
        self.filters().any(passes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("a", name)
    }

    /// Returns the keys by watched object, and those with a function.
    fn requested(requests: &Requests) -> (Vec<String>, Vec<String>) {
        let pair = |(object, keys): (&ObjectKey, &BTreeSet<ObjectKey>)| {
            let keys = keys.iter().map(ObjectKey::name).collect::<Vec<_>>();
            format!("{} {}", object.name(), keys.join(","))
        };
        let by_function = requests.by_function.iter().map(|key| key.name().to_owned());
        (requests.by_object.iter().map(pair).collect(), by_function.collect())
    }

    #[test]
    fn a_watch_ends_when_no_run_requests_it() {
        let mut requests = Requests::default();
        let object = |name: &str| Filter::Object(key(name));
        requests.add(&key("one"), object("x"));
        requests.add(&key("one"), Filter::Passing(Box::new(|_| true)));
        requests.add(&key("two"), object("x"));
        assert_eq!(requested(&requests), (vec!["x one,two".into()], vec!["one".into()]), "from the request on");
        assert!(requests.end_run(&key("one"), true) && requests.end_run(&key("two"), true));

        // A run that fails adds to the earlier requests.
        requests.add(&key("one"), object("y"));
        assert!(requests.end_run(&key("one"), false));
        assert_eq!(requested(&requests), (vec!["x one,two".into(), "y one".into()], vec!["one".into()]));
        requests.add(&key("one"), object("y"));
        assert!(requests.end_run(&key("one"), true));
        assert_eq!(requested(&requests), (vec!["x two".into(), "y one".into()], vec![]));
        requests.add(&key("two"), Filter::Passing(Box::new(|_| true)));
        assert!(requests.end_run(&key("two"), true) && requests.end_run(&key("one"), true));
        assert_eq!(requested(&requests), (vec![], vec!["two".into()]));
        assert!(!requests.end_run(&key("two"), true), "no request is left");
        assert_eq!(requested(&requests), (vec![], vec![]));
    }
}
