//! Multi-version storage: a revision counter, an ordered map of the current objects, and a log of the latest changes.
//!
//! * A list is a snapshot. Cloning the map is cheap, and an older revision is restored by undoing the log.
//! * A watch is a [`Cursor`] into the log of its resource. No events are queued per watcher, so a slow one costs no
//!   memory. Once the log has dropped its position, its reads fail.
//! * A write is an optimistic transaction. It is decided without a lock, and committed if the object hasn't changed
//!   since.
//!
//! The store is independent of requests, kinds and schemas. It never waits while it holds its lock. With a [data
//! directory](disk), a change is written to it before it is made, under a lock that only writers take.

mod disk;
mod key;
mod log;
mod object;
mod parsed;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use kubewright_apimachinery::watch;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

pub use self::{
    disk::{DataDirError, Durability},
    object::ChangeKind,
};
pub(crate) use self::{
    disk::{DiskOptions, WriteError},
    key::Key,
    log::{Event, Expired, Limits},
    object::{Stored, frame},
};

use self::{
    disk::{ChangeLog, Restore, Sync, WrittenObject},
    log::Log,
    parsed::Parsed,
};
use crate::sorted_map::SortedMap;

/// The revision of an empty store. Clients interpret 0 as "any version", so the counter starts above it.
const FIRST_REVISION: u64 = 1;

/// The objects of one resource, in order.
pub(crate) type Objects = SortedMap<Key, Arc<Stored>>;

/// The objects of one resource at one revision.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) objects: Objects,
}

/// All objects of an API server at one moment, from which other servers can start; see
/// [`ApiServer::checkpoint`](crate::ApiServer::checkpoint). Clones share the objects.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    revision: u64,
    objects: Arc<[(Arc<str>, Objects)]>,
}

/// The change that a transaction makes.
#[derive(Debug)]
pub(crate) enum Mutation {
    /// Stores this object.
    Put(Value),
    /// Removes the object. Contains its last state.
    Remove(Value),
    /// Changes nothing.
    Keep,
}

/// The replacement of another object that a transaction makes, before its own change.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) storage: Arc<str>,
    pub(crate) key: Key,
    /// The state that is replaced. If the object has changed since, the transaction is repeated.
    pub(crate) before: Arc<Stored>,
    pub(crate) value: Value,
}

/// The result of a transaction.
#[derive(Debug)]
pub(crate) struct Committed {
    /// The object after the transaction, or its last state if it was removed.
    pub(crate) object: Option<Arc<Stored>>,
    /// The change, if there was one.
    pub(crate) change: Option<ChangeKind>,
}

/// The error of reading a revision that isn't available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The revision is too old.
    Expired(Expired),
    /// The revision is in the future. Contains the current one.
    Future(u64),
}

#[derive(Debug)]
struct Collection {
    objects: Objects,
    log: Log,
    parsed: Parsed,
    /// Notified after each commit, outside of the lock. The value isn't used.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    revision: u64,
    collections: BTreeMap<Arc<str>, Collection>,
    /// The log of the changes of all resources. It shares the events with the logs of the resources.
    log: Log,
    /// The revision at which the history begins.
    floor: u64,
    /// The oldest revision that lists read.
    needed: u64,
}

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    /// Held during a commit, so that the log has the order of the revisions.
    writer: Mutex<Writer>,
    state: RwLock<State>,
    limits: Limits,
    changed: watch::Sender<u64>,
    sync: Option<Arc<Sync>>,
}

/// Where changes are written before they are made.
#[derive(Debug)]
enum Writer {
    Memory,
    Disk(Box<ChangeLog>),
    /// The data directory has been closed.
    Closed,
}

impl Writer {
    /// Writes a change to the data directory, if there is one.
    fn write(&mut self, write: impl FnOnce(&mut ChangeLog) -> Result<(), WriteError>) -> Result<(), WriteError> {
        match self {
            Self::Memory => Ok(()),
            Self::Disk(log) => write(log),
            Self::Closed => Err(WriteError::closed()),
        }
    }
}

impl Store {
    /// Creates an empty store whose logs have these limits.
    pub(crate) fn new(limits: Limits) -> Self {
        Self::with(State::new(limits), limits, Writer::Memory)
    }

    /// Creates a store in memory that contains the objects of another one, and shares them with it until they are
    /// changed. It doesn't have the changes before.
    pub(crate) fn from_checkpoint(checkpoint: &Checkpoint, limits: Limits) -> Self {
        let mut state = State::new(limits);
        for (storage, objects) in &*checkpoint.objects {
            state.collection(storage, limits).objects = objects.clone();
        }
        state.set_floor(checkpoint.revision, limits);
        Self::with(state, limits, Writer::Memory)
    }

    /// Opens a store that keeps its objects in a data directory.
    ///
    /// # Errors
    /// If the directory can't be used.
    pub(crate) fn open(limits: Limits, options: DiskOptions) -> Result<Self, DataDirError> {
        let mut state = State::new(limits);
        let log = disk::open(options, &mut Restoring { state: &mut state, limits })?;
        Ok(Self::with(state, limits, Writer::Disk(Box::new(log))))
    }

    fn with(mut state: State, limits: Limits, writer: Writer) -> Self {
        state.needed = state.revision;
        let sync = match &writer {
            Writer::Disk(log) => Some(log.sync()),
            Writer::Memory | Writer::Closed => None,
        };
        Self { writer: Mutex::new(writer), state: RwLock::new(state), limits, changed: watch::Sender::new(0), sync }
    }

    /// Returns whether nothing was ever written.
    pub(crate) fn is_new(&self) -> bool {
        self.revision() == FIRST_REVISION
    }

    /// Returns the credentials in the data directory, which `make` returns at first; `None` without a data directory.
    pub(crate) fn credentials<E: From<DataDirError>>(
        &self,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        match &*self.writer.lock() {
            Writer::Disk(log) => log.credentials(make).map(Some),
            Writer::Memory | Writer::Closed => Ok(None),
        }
    }

    /// Waits until everything that was written is on the disk, if the store promises that.
    pub(crate) async fn synced(&self) -> Result<(), WriteError> {
        match &self.sync {
            Some(sync) => sync.wait().await,
            None => Ok(()),
        }
    }

    /// Closes the data directory. Changes are refused from now on. Does nothing without a data directory.
    pub(crate) fn close(&self) {
        let mut writer = self.writer.lock();
        if let Writer::Disk(_) = &*writer {
            *writer = Writer::Closed;
        }
    }

    /// Returns the current revision.
    pub(crate) fn revision(&self) -> u64 {
        self.state.read().revision
    }

    /// Gives up the revisions before `oldest`, the oldest one that lists read. The latest changes before it are kept
    /// for watches. Objects that haven't changed since are kept as text only.
    pub(crate) fn compact(&self, oldest: u64) {
        let mut state = self.state.write();
        state.needed = oldest;
        let mut events = vec![state.log.compact(oldest)];
        let mut outdated = Vec::new();
        for collection in state.collections.values_mut() {
            events.push(collection.log.compact(oldest));
            outdated.append(&mut collection.parsed.compact(oldest));
        }
        // Objects are dropped outside of the lock.
        drop(state);
        drop(events);
        drop_values(outdated);
    }

    /// Forgets all changes up to now, so that older revisions can't be read.
    pub(crate) fn forget_history(&self) -> Result<(), WriteError> {
        let mut writer = self.writer.lock();
        let mut state = self.state.write();
        let floor = state.revision;
        writer.write(|log| log.append_floor(floor))?;
        state.set_floor(floor, self.limits);
        Ok(())
    }

    /// Returns the current state of an object.
    pub(crate) fn get(&self, storage: &str, key: &Key) -> Option<Arc<Stored>> {
        self.state.read().collections.get(storage)?.objects.get(key).cloned()
    }

    /// Returns the objects of a resource in a namespace.
    pub(crate) fn of_namespace(&self, storage: &str, namespace: &str) -> Vec<(Key, Arc<Stored>)> {
        let state = self.state.read();
        let Some(collection) = state.collections.get(storage) else { return Vec::new() };
        let objects = collection.objects.range(Key::new(namespace, "")..);
        let objects = objects.take_while(|(key, _)| *key.namespace == *namespace);
        objects.map(|(key, stored)| (key.clone(), stored.clone())).collect()
    }

    /// Returns the current objects of a resource.
    pub(crate) fn snapshot(&self, storage: &str) -> Snapshot {
        let state = self.state.read();
        let objects = state.collections.get(storage).map(|collection| collection.objects.clone()).unwrap_or_default();
        Snapshot { revision: state.revision, objects }
    }

    /// Returns the objects of a resource at `revision`.
    pub(crate) fn snapshot_at(&self, storage: &str, revision: u64) -> Result<Snapshot, ReadError> {
        let state = self.state.read();
        if revision > state.revision {
            return Err(ReadError::Future(state.revision));
        }
        let Some(collection) = state.collections.get(storage) else {
            let expired = Err(ReadError::Expired(Expired { oldest: state.floor }));
            return if revision < state.floor {
                expired
            } else {
                Ok(Snapshot { revision, objects: Objects::default() })
            };
        };
        let mut objects = collection.objects.clone();
        let undo: Vec<_> = collection.log.after(revision).map_err(ReadError::Expired)?.rev().cloned().collect();
        drop(state);
        for event in undo {
            match &event.previous {
                Some(previous) => objects.insert(event.key.clone(), previous.clone()),
                None => drop(objects.remove(&event.key)),
            }
        }
        Ok(Snapshot { revision, objects })
    }

    /// Returns a cursor after the changes up to `revision`.
    pub(crate) fn cursor(&self, storage: &Arc<str>, revision: u64) -> Cursor {
        let mut state = self.state.write();
        let changed = state.collection(storage, self.limits).changed.subscribe();
        Cursor { storage: Some(storage.clone()), revision, changed }
    }

    /// Returns a cursor over the changes of all resources, and all objects at its revision.
    pub(crate) fn everything(&self) -> (Cursor, Vec<(Arc<str>, Objects)>) {
        let state = self.state.read();
        let objects = state.collections.iter().map(|(storage, held)| (storage.clone(), held.objects.clone())).collect();
        (Cursor { storage: None, revision: state.revision, changed: self.changed.subscribe() }, objects)
    }

    /// Returns all objects as they are now, parsed once for all servers that start with them.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        let (cursor, objects) = self.everything();
        objects.iter().flat_map(|(_, objects)| objects.iter()).for_each(|(_, object)| object.keep_value());
        Checkpoint { revision: cursor.revision(), objects: objects.into() }
    }

    /// Waits until the store has reached `revision`.
    pub(crate) async fn reached(&self, revision: u64) {
        let mut changed = self.changed.subscribe();
        while self.revision() < revision {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Adds an object that `create` returns for its revision, unless there is one.
    pub(crate) fn add(
        &self,
        storage: &Arc<str>,
        key: &Key,
        create: impl FnOnce(u64) -> Stored,
    ) -> Result<(), WriteError> {
        let mut writer = self.writer.lock();
        if self.get(storage, key).is_some() {
            return Ok(());
        }
        let object = Arc::new(create(self.revision() + 1));
        writer.write(|log| log.append_change(storage, key, &object))?;
        let written = self.state.write().commit(storage, key, None, object, self.limits);
        self.compact_if_long(&mut writer);
        drop(writer);
        self.announce(written);
        Ok(())
    }

    /// Notifies watchers of a commit, and drops the values that it has replaced. The caller holds no lock.
    fn announce(&self, written: Written) {
        written.changed.send_replace(written.object.revision());
        self.changed.send_replace(written.object.revision());
        drop_values(written.outdated);
    }

    /// Changes one object. `decide` gets its current state, and is called again if that changes before the commit.
    /// `committed` observes the object before and after the change, in revision order and before any watcher.
    ///
    /// # Errors
    /// Returns the errors of the decision, and [`WriteError`] if the change can't be written to the data directory.
    pub(crate) fn transact<E: From<WriteError>>(
        &self,
        storage: &Arc<str>,
        key: &Key,
        decide: impl FnMut(Option<&Arc<Value>>) -> Result<Mutation, E>,
        committed: impl FnOnce(Option<&Value>, Option<&Value>),
    ) -> Result<Committed, E> {
        let mut committed = Some(committed);
        let observe = |_: &str, before: Option<&Value>, after: Option<&Value>| {
            if let Some(committed) = committed.take() {
                committed(before, after);
            }
        };
        self.transact_with(storage, key, decide, |_, _| Ok(Vec::new()), |_, _| Ok(()), observe)
    }

    /// Like [`Store::transact`], with replacements of other objects, which are made before the change. `attach` returns
    /// them for the object before and after its change, unless that is its removal, and is called again if one of them
    /// has changed before the commit. No other change comes between them. `verify` is the last check of an object that
    /// is put, for what depends on others: nothing changes until the commit. `committed` also gets the resource of each
    /// changed object.
    ///
    /// # Errors
    /// Those of [`Store::transact`], of `attach` and of `verify`. After a [`WriteError`] some of the replacements may
    /// have been made.
    pub(crate) fn transact_with<E: From<WriteError>>(
        &self,
        storage: &Arc<str>,
        key: &Key,
        mut decide: impl FnMut(Option<&Arc<Value>>) -> Result<Mutation, E>,
        mut attach: impl FnMut(Option<&Value>, &Value) -> Result<Vec<Attached>, E>,
        verify: impl Fn(Option<&Value>, &Value) -> Result<(), E>,
        mut committed: impl FnMut(&str, Option<&Value>, Option<&Value>),
    ) -> Result<Committed, E> {
        'decision: loop {
            let before = self.get(storage, key);
            let old = before.as_ref().map(|stored| stored.value());
            let (value, change) = match (decide(old.as_ref())?, &before) {
                (Mutation::Put(value), None) => (value, ChangeKind::Added),
                (Mutation::Put(value), Some(_)) => (value, ChangeKind::Modified),
                (Mutation::Remove(value), Some(_)) => (value, ChangeKind::Deleted),
                (Mutation::Remove(_), None) | (Mutation::Keep, _) => {
                    return Ok(Committed { object: before, change: None });
                }
            };
            let (mut writer, attached) = loop {
                let attached = match change {
                    ChangeKind::Deleted => Vec::new(),
                    ChangeKind::Added | ChangeKind::Modified => attach(old.as_deref(), &value)?,
                };
                let writer = self.writer.lock();
                let state = self.state.read();
                if state.revision_of(storage, key) != before.as_ref().map(|stored| stored.revision()) {
                    continue 'decision;
                }
                if attached.iter().all(|one| state.revision_of(&one.storage, &one.key) == Some(one.before.revision())) {
                    break (writer, attached);
                }
            };
            if change != ChangeKind::Deleted {
                verify(old.as_deref(), &value)?;
            }
            let mut done = Vec::with_capacity(attached.len() + 1);
            let mut make = |storage: &Arc<str>, key: &Key, before, change, value| {
                done.push(self.make(&mut writer, (storage, key), before, (change, value), &mut committed)?);
                Ok::<_, WriteError>(())
            };
            let mut attached = attached.into_iter();
            let made = attached
                .try_for_each(|one| make(&one.storage, &one.key, Some(one.before), ChangeKind::Modified, one.value))
                .and_then(|()| make(storage, key, before, change, value));
            self.compact_if_long(&mut writer);
            drop(writer);
            // Expensive work is done after the locks are released: notifying watchers, dropping old events.
            let object = done.last().map(|(written, _)| written.object.clone());
            let mut results = Vec::with_capacity(done.len());
            for (written, observed) in done {
                self.announce(written);
                results.push(observed);
            }
            // The write is committed even if its observer panicked, so watchers are notified before the panic resumes.
            results.into_iter().for_each(|observed| observed.unwrap_or_else(|panic| resume_unwind(panic)));
            made?;
            return Ok(Committed { object, change: Some(change) });
        }
    }

    /// Makes a change, and returns it with the result of its observer. The caller holds the lock of the writer.
    fn make(
        &self,
        writer: &mut Writer,
        (storage, key): (&Arc<str>, &Key),
        before: Option<Arc<Stored>>,
        (change, value): (ChangeKind, Value),
        committed: &mut impl FnMut(&str, Option<&Value>, Option<&Value>),
    ) -> Result<(Written, std::thread::Result<()>), WriteError> {
        // Only the holder of the writer's lock changes the revision.
        let object = Arc::new(Stored::new(change, self.revision() + 1, value));
        writer.write(|log| log.append_change(storage, key, &object))?;
        let old = before.as_ref().map(|stored| stored.value());
        let mut state = self.state.write();
        let written = state.commit(storage, key, before, object, self.limits);
        let after = (change != ChangeKind::Deleted).then(|| written.object.value());
        let observed = catch_unwind(AssertUnwindSafe(|| committed(storage, old.as_deref(), after.as_deref())));
        Ok((written, observed))
    }

    /// Begins to compact the log of the data directory if it is long.
    fn compact_if_long(&self, writer: &mut Writer) {
        if let Writer::Disk(log) = writer
            && log.is_long()
        {
            let (cursor, objects) = self.everything();
            log.compact(cursor.revision(), objects);
        }
    }
}

/// A commit, and the work to do after the lock is released.
struct Written {
    object: Arc<Stored>,
    changed: watch::Sender<u64>,
    /// The versions that are no longer kept parsed.
    outdated: Vec<Arc<Stored>>,
    /// The events that the logs no longer contain, which are dropped outside of the lock.
    _dropped: [Vec<Arc<Event>>; 2],
}

/// Drops the values of objects that are no longer among the latest.
fn drop_values(outdated: Vec<Arc<Stored>>) {
    for object in outdated {
        // A version that nothing else refers to is dropped as a whole.
        if Arc::strong_count(&object) > 1 {
            object.drop_value();
        }
    }
}

impl State {
    fn new(limits: Limits) -> Self {
        Self {
            revision: FIRST_REVISION,
            collections: BTreeMap::new(),
            log: Log::new(limits, 0),
            floor: 0,
            needed: u64::MAX,
        }
    }

    /// Sets the revision, and forgets all changes up to it.
    fn set_floor(&mut self, floor: u64, limits: Limits) {
        (self.revision, self.floor) = (floor, floor);
        self.log = Log::new(limits, floor);
        for collection in self.collections.values_mut() {
            collection.log = Log::new(limits, floor);
        }
    }

    fn collection(&mut self, storage: &Arc<str>, limits: Limits) -> &mut Collection {
        self.collections.entry(storage.clone()).or_insert_with(|| Collection {
            objects: Objects::default(),
            log: Log::new(limits, self.floor),
            parsed: Parsed::new(limits.parsed),
            changed: watch::Sender::new(0),
        })
    }

    fn revision_of(&self, storage: &str, key: &Key) -> Option<u64> {
        Some(self.collections.get(storage)?.objects.get(key)?.revision())
    }

    fn commit(
        &mut self,
        storage: &Arc<str>,
        key: &Key,
        previous: Option<Arc<Stored>>,
        object: Arc<Stored>,
        limits: Limits,
    ) -> Written {
        self.revision = object.revision();
        let event = Arc::new(Event { storage: storage.clone(), key: key.clone(), object: object.clone(), previous });
        let needed = self.needed;
        let collection = self.collection(storage, limits);
        match object.change() {
            ChangeKind::Deleted => drop(collection.objects.remove(key)),
            ChangeKind::Added | ChangeKind::Modified => collection.objects.insert(key.clone(), object.clone()),
        }
        let changed = collection.changed.clone();
        let dropped = collection.log.push(event.clone(), needed);
        let outdated = collection.parsed.push(object.clone());
        Written { object, changed, outdated, _dropped: [dropped, self.log.push(event, needed)] }
    }
}

/// A state that is read from a data directory.
struct Restoring<'a> {
    state: &'a mut State,
    limits: Limits,
}

impl Restore for Restoring<'_> {
    fn object(&mut self, written: &WrittenObject<'_>) -> Result<(), String> {
        let object = restored(ChangeKind::Added, written)?;
        object.drop_value();
        let collection = self.state.collection(&written.storage.into(), self.limits);
        collection.objects.insert(Key::new(written.namespace, written.name), object);
        Ok(())
    }

    fn change(&mut self, removed: bool, written: &WrittenObject<'_>) -> Result<(), String> {
        let next = self.state.revision + 1;
        if written.revision != next {
            return Err(format!("the change with revision {next}"));
        }
        let (storage, key) = (written.storage.into(), Key::new(written.namespace, written.name));
        let before = self.state.collections.get(&storage).and_then(|held| held.objects.get(&key)).cloned();
        let change = match (removed, &before) {
            (false, None) => ChangeKind::Added,
            (false, Some(_)) => ChangeKind::Modified,
            (true, Some(_)) => ChangeKind::Deleted,
            (true, None) => return Err("the removal of an object that exists".to_owned()),
        };
        let object = restored(change, written)?;
        drop_values(self.state.commit(&storage, &key, before, object, self.limits).outdated);
        Ok(())
    }

    fn set_floor(&mut self, revision: u64) -> Result<(), String> {
        if revision < self.state.revision {
            return Err(format!("a revision from {} on", self.state.revision));
        }
        self.state.set_floor(revision, self.limits);
        Ok(())
    }

    fn revision(&self) -> u64 {
        self.state.revision
    }
}

fn restored(change: ChangeKind, written: &WrittenObject<'_>) -> Result<Arc<Stored>, String> {
    let object = Stored::restored(change, written.revision, written.object);
    object.map(Arc::new).ok_or_else(|| format!("an object with resource version {}", written.revision))
}

/// A reader's position in a log.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    /// The resource; `None` for the log of all resources.
    storage: Option<Arc<str>>,
    revision: u64,
    changed: watch::Receiver<u64>,
}

impl Cursor {
    /// Returns the revision up to which all changes have been read.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the next changes, at most `most`, without waiting; empty if there are none.
    pub(crate) fn read(&mut self, store: &Store, most: usize) -> Result<Vec<Arc<Event>>, Expired> {
        self.changed.mark_unchanged();
        let state = store.state.read();
        let log = match &self.storage {
            None => Some(&state.log),
            Some(storage) => state.collections.get(storage).map(|collection| &collection.log),
        };
        let events: Vec<_> = match log {
            Some(log) => log.after(self.revision)?.take(most).cloned().collect(),
            None => Vec::new(),
        };
        self.revision = match events.last() {
            Some(last) if events.len() == most => last.object.revision(),
            _ => self.revision.max(state.revision),
        };
        Ok(events)
    }

    /// Waits until there may be changes to read. Returns false if the store was dropped.
    pub(crate) async fn wait(&mut self) -> bool {
        self.changed.changed().await.is_ok()
    }
}
