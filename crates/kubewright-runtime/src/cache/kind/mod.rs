//! The informer of one kind: its store, the state of its watches, and the handlers of its changes.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::api::ListParams;
use kubewright_apimachinery::watch;
use kubewright_packed::RawObject;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tracing::{error, warn};

use super::{
    codec::{Codec, Undecodable},
    decoded::Types,
    delta::{Cause, Delta, StoreChange},
    expected::ExpectedState,
    list_watch::Event,
    options::Plan,
    overlay::LiveLists,
    store::{Row, Store},
    sync::Unsynced,
    watch_state::{Rollback, WatchState},
};
use crate::object::{AnyObject, KindName, ObjectKey};

pub(crate) type Handler = Arc<dyn Fn(&Delta<'_>) + Send + Sync>;
pub(crate) type Listener = Arc<dyn Fn() + Send + Sync>;

/// One kind in the cache: one watch for each scope and one copy of each object, shared by all types that read the kind.
pub(crate) struct Kind {
    codec: Codec,
    state: RwLock<State>,
    handlers: RwLock<Vec<Handler>>,
    listeners: RwLock<Vec<Listener>>,
    synced: watch::Sender<bool>,
    /// For each watch, a request to list again.
    relists: Box<[Notify]>,
    lists: LiveLists,
    /// Whether the kind is no longer watched.
    has_ended: AtomicBool,
}

struct State {
    store: Store,
    /// One for each watched namespace, or a single one for all.
    watches: Vec<WatchState>,
    /// The number of types that were declared after the first event. Lists that begin later have the fields that they
    /// read.
    generation: u64,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").field("name", self.name()).finish_non_exhaustive()
    }
}

impl Kind {
    pub(super) fn new(name: KindName, plan: Plan) -> Self {
        let codec = Codec::new(name, plan);
        let watches = codec.scopes().map(|scope| WatchState::new(scope.map(Into::into))).collect::<Vec<_>>();
        let relists = watches.iter().map(|_| Notify::new()).collect();
        Self {
            codec,
            state: RwLock::new(State { store: Store::default(), watches, generation: 0 }),
            handlers: RwLock::default(),
            listeners: RwLock::default(),
            synced: watch::Sender::new(false),
            relists,
            lists: LiveLists::default(),
            has_ended: AtomicBool::new(false),
        }
    }

    pub(crate) fn name(&self) -> &Arc<KindName> {
        self.codec.name()
    }

    pub(super) fn codec(&self) -> &Codec {
        &self.codec
    }

    /// Returns the period after which all objects are passed to handlers again.
    pub(super) fn streams_lists(&self) -> bool {
        self.codec.streams_lists()
    }

    pub(super) fn resync_period(&self) -> Option<Duration> {
        self.codec.resync_period()
    }

    /// Returns the scopes of the watches, in their order.
    pub(super) fn scopes(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.codec.scopes()
    }

    /// Returns whether discovery has to say first that the kind is namespaced.
    pub(super) fn needs_discovery(&self) -> bool {
        self.codec.needs_discovery()
    }

    /// Replaces the watched namespaces by a single watch. Must be called before the watches begin.
    pub(super) fn set_cluster_scoped(&self) {
        self.codec.set_cluster_scoped();
        self.state.write().watches = vec![WatchState::new(None)];
    }

    /// Returns the scope of the watch that covers a namespace.
    pub(crate) fn scope_of<'a>(&'a self, namespace: Option<&'a str>) -> Option<&'a str> {
        let covers = |scope: &Option<&str>| scope.is_none() || *scope == namespace;
        self.scopes().find(covers).unwrap_or(namespace)
    }

    /// Returns whether the cache is certain to contain an object of that namespace with these labels.
    pub(crate) fn selects(&self, namespace: Option<&str>, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.codec.selects(namespace, labels)
    }

    /// Returns the selectors for the objects of a namespace, or of a watched scope.
    pub(super) fn selection(&self, namespace: Option<&str>) -> ListParams {
        self.codec.selection(namespace)
    }

    /// Keeps the fields that `T` reads. Must be called before the first event.
    pub(crate) fn declare<T: AnyObject>(&self) {
        self.codec.declare::<T>(|| 0);
    }

    /// Keeps the fields that `T` reads, also of objects that arrived before: if `T` is new, all watches list again.
    /// Returns the generation to pass to [`Kind::is_complete`].
    pub(crate) fn declare_late<T: AnyObject>(&self) -> u64 {
        let state = &mut *self.state.write();
        self.codec.declare::<T>(|| self.begin_generation(state))
    }

    /// Returns whether the store has all objects, with the fields that the types of this generation read.
    pub(crate) fn is_complete(&self, generation: u64) -> bool {
        self.state.read().watches.iter().all(|watch| watch.is_synced() && watch.generation() >= generation)
    }

    /// Returns whether only metadata is read.
    pub(super) fn is_metadata_only(&self) -> bool {
        self.codec.is_metadata_only()
    }

    /// Calls `handler` with every later change, in order, from the task of the watch.
    pub(crate) fn on_change(&self, handler: impl Fn(&Delta<'_>) + Send + Sync + 'static) -> Handler {
        let handler: Handler = Arc::new(handler);
        self.handlers.write().push(handler.clone());
        handler
    }

    /// Calls `listener` after every event that the store has taken in.
    pub(crate) fn on_advance(&self, listener: Listener) {
        self.listeners.write().push(listener);
    }

    /// Removes a handler. Must not be called from within it.
    pub(crate) fn off_change(&self, handler: &Handler) {
        self.handlers.write().retain(|known| !Arc::ptr_eq(known, handler));
    }

    /// Removes a listener. Must not be called from within it.
    pub(crate) fn off_advance(&self, listener: &Listener) {
        self.listeners.write().retain(|known| !Arc::ptr_eq(known, listener));
    }

    /// Passes all objects to one handler, as the first list did to those that were there then.
    pub(crate) fn replay(&self, handler: &Handler) {
        let added = |row: &Row| StoreChange::new(None, Some(row.clone()), Types::default(), Cause::FirstList);
        let steps = self.read(|store| store.within(None).map(added).collect::<Vec<_>>());
        self.handle_by(handler, &steps);
    }

    /// Adds an index, or replaces the one with that name. Must be called before the first event.
    pub(crate) fn index<T: AnyObject>(
        &self,
        name: &'static str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) {
        self.declare::<T>();
        self.codec.index(name, values);
    }

    /// [`Kind::index`], also for objects that arrived before: all watches list again. Returns the generation to pass to
    /// [`Kind::is_complete`].
    pub(crate) fn index_late<T: AnyObject>(
        &self,
        name: &'static str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> u64 {
        self.declare_late::<T>();
        let state = &mut *self.state.write();
        self.codec.index(name, values);
        self.begin_generation(state)
    }

    /// Makes all watches list again that have begun to, for objects with everything that is declared by now.
    fn begin_generation(&self, State { watches, generation, .. }: &mut State) -> u64 {
        if !watches.iter().any(WatchState::has_begun) {
            return *generation;
        }
        *generation += 1;
        for (number, watch) in watches.iter_mut().enumerate() {
            watch.expect_generation(*generation);
            self.relist(number);
        }
        *generation
    }

    /// Reads the store. The watch waits meanwhile, so `read` must be short.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Store) -> T) -> T {
        read(&self.state.read().store)
    }

    /// Returns the UID of a cached object.
    pub(crate) fn uid_of(&self, key: &ObjectKey) -> Option<String> {
        self.read(|store| store.get(key)?.uid.as_ref().map(ToString::to_string))
    }

    /// Returns the resource version of a cached object.
    pub(crate) fn version_of(&self, key: &ObjectKey) -> Option<u64> {
        self.read(|store| store.get(key)?.version.number())
    }

    /// Takes in an event of a watch and calls handlers and listeners.
    ///
    /// # Errors
    /// When the object can't be decoded.
    pub(super) fn take(&self, number: usize, event: Event<RawObject>) -> Result<(), Undecodable> {
        // Only this watch changes its part of the store, so the object is decoded before readers are locked out.
        let encoded = Cell::new(self.encoded(number, &event));
        let encode = |key, draft: &RawObject| encoded.take().unwrap_or_else(|| self.codec.encode(key, draft));
        let mut steps = Vec::new();
        let (taken, synced, rollback) = {
            let State { store, watches, .. } = &mut *self.state.write();
            let Some(watch) = watches.get_mut(number) else { return Ok(()) };
            let taken = watch.take(store, event, &encode, |step| steps.push(step));
            let rollback = watch.take_rollback();
            (taken, watches.iter().all(WatchState::is_synced), rollback)
        };
        match rollback {
            None => {}
            Some(Rollback::Suspected) => self.relist(number),
            Some(Rollback::Certain) => warn!(
                kind = %self.name(),
                "the API server returned an older state than before, as after a restore of etcd: the cache follows it"
            ),
        }
        for step in &steps {
            if let (Some(row), Cause::Event) = (&step.new, step.cause) {
                self.codec.recent().insert(row, &step.types);
            }
        }
        self.handle(&steps);
        for listener in self.listeners.read().iter() {
            listener();
        }
        // It never becomes false again, although another watch that looked earlier may get here later.
        if synced {
            self.synced.send_if_modified(|known| !std::mem::replace(known, true));
        }
        taken
    }

    /// Encodes the event's object, if the watch state will ask for it.
    fn encoded(&self, number: usize, event: &Event<RawObject>) -> Option<Result<(Row, Types), Undecodable>> {
        let (Event::Apply(draft) | Event::InitApply(draft) | Event::Delete(draft)) = event else { return None };
        let key = {
            let State { store, watches, .. } = &*self.state.read();
            watches.get(number)?.wants(store, event)?
        };
        Some(self.codec.encode(key, draft))
    }

    /// Returns the keys of the objects in a watch's scope, in order.
    pub(super) fn keys_of(&self, number: usize) -> Vec<ObjectKey> {
        let State { store, watches, .. } = &*self.state.read();
        let rows = watches.get(number).into_iter().flat_map(|watch| store.within(watch.scope()));
        rows.map(|row| row.key.clone()).collect()
    }

    /// Passes those of these objects that still exist to the handlers again, as updates without a difference.
    pub(super) fn resync(&self, keys: &[ObjectKey]) {
        let steps = self.read(|store| {
            let rows = keys.iter().filter_map(|key| store.get(key));
            let step =
                |row: &Row| StoreChange::new(Some(row.clone()), Some(row.clone()), Types::default(), Cause::Resync);
            rows.map(step).collect::<Vec<_>>()
        });
        self.handle(&steps);
    }

    /// Returns whether decoded objects are to be [evicted](Kind::evict).
    pub(super) fn is_over_capacity(&self) -> bool {
        self.codec.recent().is_over_capacity()
    }

    /// Drops the oldest decoded objects. That takes some time, so tasks that an event has woken run first.
    pub(super) fn evict(&self) {
        self.codec.recent().evict();
    }

    fn handle(&self, steps: &[StoreChange]) {
        self.handlers.read().iter().for_each(|handler| self.handle_by(handler, steps));
    }

    fn handle_by(&self, handler: &Handler, steps: &[StoreChange]) {
        for delta in steps.iter().filter_map(|step| Delta::new(&self.codec, step)) {
            // Predicates and mappers belong to the operator: a panic in one must not end the watch.
            if catch_unwind(AssertUnwindSafe(|| handler(&delta))).is_err() {
                error!(kind = %self.name(), "a predicate, mapper or handler panicked: the change has no effect");
            }
        }
    }

    /// Puts an object into the store, as a watch would.
    #[cfg(test)]
    pub(crate) fn put(&self, object: &serde_json::Value) {
        let draft = serde::Deserialize::deserialize(object).expect("an object");
        self.take(0, Event::Apply(draft)).expect("an object that its types can read");
    }

    /// Records why a watch fails.
    pub(super) fn fail(&self, number: usize, reason: String) {
        if let Some(watch) = self.state.write().watches.get_mut(number) {
            watch.fail(reason);
        }
    }

    /// Records that a watch works.
    pub(super) fn recover(&self, number: usize) {
        if let Some(watch) = self.state.write().watches.get_mut(number) {
            watch.recover();
        }
    }

    /// Returns whether every watch has had its first complete list.
    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns the current failure of a watch, if one fails.
    pub(crate) fn failure(&self) -> Option<String> {
        self.state.read().watches.iter().find_map(|watch| watch.failure().map(str::to_owned))
    }

    /// Returns the reason for which the first lists are not complete, if they are not.
    pub(super) fn unsynced(&self) -> Option<Unsynced> {
        (!self.is_synced()).then(|| self.lacking())
    }

    /// Returns the reason for which the kind is not complete.
    pub(crate) fn lacking(&self) -> Unsynced {
        let reason = self.failure().unwrap_or_else(|| "still listing".into());
        Unsynced { kind: self.name().as_ref().clone(), reason }
    }

    /// Returns a channel that becomes true when every watch has had its first complete list.
    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Records that a watch is about to list: types that are declared later make it list again.
    pub(super) fn begin(&self, number: usize) {
        if let Some(watch) = self.state.write().watches.get_mut(number) {
            watch.begin();
        }
    }

    /// Makes a watch list again.
    pub(super) fn relist(&self, number: usize) {
        self.relists.iter().skip(number).take(1).for_each(Notify::notify_one);
    }

    /// Drops the resource versions that a watch has seen, which the API server doesn't know: its next list is accepted
    /// as it is.
    pub(super) fn forget_versions(&self, number: usize) {
        if let Some(watch) = self.state.write().watches.get_mut(number) {
            watch.forget_versions();
        }
    }

    /// Makes the watch of a namespace list again, which then contains everything that was written before.
    pub(crate) fn catch_up(&self, namespace: Option<&str>) {
        let number = self.state.read().watches.iter().position(|watch| watch.covers(namespace));
        number.into_iter().for_each(|number| self.relist(number));
    }

    pub(super) fn lists(&self) -> &LiveLists {
        &self.lists
    }

    /// Completes when a watch is requested to list again.
    pub(super) async fn relist_requested(&self, number: usize) {
        match self.relists.get(number) {
            Some(requested) => requested.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Records a resource version that the API server has returned to a write or a live read: a list that begins later
    /// is at least as new, even if the object is gone by then.
    pub(crate) fn note_version(&self, namespace: Option<&str>, version: u64) {
        for watch in self.state.write().watches.iter_mut().filter(|watch| watch.covers(namespace)) {
            watch.note_version(version);
        }
    }

    /// Returns whether the cache covers that namespace.
    pub(crate) fn covers(&self, namespace: Option<&str>) -> bool {
        self.state.read().watches.iter().any(|watch| watch.covers(namespace))
    }

    /// Drops the handlers and listeners.
    pub(super) fn release(&self) {
        // Outside of the locks: what they hold may use the kind when it is dropped.
        let handlers = std::mem::take(&mut *self.handlers.write());
        let listeners = std::mem::take(&mut *self.listeners.write());
        drop((handlers, listeners));
    }

    /// Records that the kind is no longer watched.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Returns whether the kind is no longer watched.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Returns whether the cache shows a state in that namespace; also true for a namespace that it doesn't cover.
    pub(crate) fn shows(&self, namespace: Option<&str>, expected: &ExpectedState) -> bool {
        let state = self.state.read();
        let Some(watch) = state.watches.iter().find(|watch| watch.covers(namespace)) else { return true };
        match expected {
            ExpectedState::Version(version) => watch.observed() >= *version,
            ExpectedState::Gone { key, uid, version } => match state.store.get(key) {
                Some(row) if row.has_uid(uid) => row.is_leaving,
                // An object that the cache doesn't have may still arrive.
                _ => version.is_none_or(|version| watch.observed() >= version),
            },
            ExpectedState::Absent { key, uid, list } => match state.store.get(key) {
                Some(row) if row.has_uid(uid) => row.is_leaving || row.version.number() > Some(*list),
                _ => true,
            },
        }
    }
}

#[cfg(test)]
mod tests;
