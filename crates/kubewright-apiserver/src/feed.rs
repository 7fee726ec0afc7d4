//! A feed of all changes, for controllers in the server's process.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, OnceLock},
};

use kubewright_apimachinery::watch;
use serde_json::Value;

use crate::{
    codec,
    registry::{Registry, Resource},
    storage::{ChangeKind, Cursor, Store, Stored},
};

/// The maximum number of events that are read from the log at once.
const BATCH: usize = 256;

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The kind of change.
    pub kind: ChangeKind,
    /// The revision of the change.
    pub revision: u64,
    /// A registry entry that serves the object: that of the storage version, if it is served.
    pub resource: Arc<Resource>,
    /// The object after the change; for a removal, its last state.
    pub stored: StoredObject,
    /// The object before the change. Absent for additions, and for the objects of a snapshot.
    pub previous: Option<StoredObject>,
    value: OnceLock<Arc<Value>>,
}

impl Change {
    /// Creates a change without a state before.
    pub fn new(kind: ChangeKind, revision: u64, resource: Arc<Resource>, stored: StoredObject) -> Self {
        Self { kind, revision, resource, stored, previous: None, value: OnceLock::new() }
    }

    /// Returns the object after the change, in its stored form; for a removal, its last state. The first call parses
    /// it, unless it is among the latest that were written.
    pub fn object(&self) -> &Arc<Value> {
        self.value.get_or_init(|| self.stored.value())
    }
}

/// One version of an object as the server stores it. To keep it costs a pointer as long as the version is the current
/// one, while a value takes about ten times the memory of the object's text.
#[derive(Clone, Debug)]
pub struct StoredObject(Arc<Stored>);

impl StoredObject {
    /// Returns the object. It is parsed again, on each call, unless it is among the latest that were written.
    pub fn value(&self) -> Arc<Value> {
        self.0.value()
    }

    /// Returns the object, or only the part of its metadata that says what it is, who owns it and whether it is being
    /// deleted, if the rest would have to be parsed.
    pub fn outline(&self) -> Arc<Value> {
        self.0.outline()
    }

    /// Returns whether the JSON text of the object contains a text, without parsing it.
    pub fn mentions(&self, text: &str) -> bool {
        std::str::from_utf8(&self.0.json()).is_ok_and(|json| json.contains(text))
    }

    /// Returns the value of a label, without parsing the object.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.0.label(key)
    }
}

/// A version that no server stores.
impl From<Value> for StoredObject {
    fn from(object: Value) -> Self {
        Self(Arc::new(Stored::unsaved(object)))
    }
}

/// Tells that a feed may have changes to return, without reading it.
#[derive(Clone, Debug)]
pub struct FeedSignal(Cursor);

impl FeedSignal {
    /// Waits for a change since the last call or, at the first call, since the feed was last read. Returns false if the
    /// server is gone. Cancel safe.
    pub async fn changed(&mut self) -> bool {
        self.0.wait().await
    }
}

/// The error that a reader was too slow and missed changes. The feed restarts with a snapshot of all objects, which
/// replaces everything that the reader has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader of the feed was too slow and has to start over")]
pub struct Lagged;

/// All changes of all objects in revision order, starting with a snapshot of all objects.
#[derive(Debug)]
pub struct Feed {
    store: Arc<Store>,
    registry: Arc<Registry>,
    cursor: Cursor,
    ready: VecDeque<Pending>,
    /// The number of entries of `ready` that belong to the snapshot.
    snapshot: usize,
    /// The entries seen so far. A change of an object may be read after its kind was removed.
    resources: BTreeMap<Arc<str>, Arc<Resource>>,
    /// Notified when `resources` are out of date.
    registered: watch::Receiver<()>,
}

/// A change that has not been returned yet.
#[derive(Debug)]
struct Pending {
    storage: Arc<str>,
    kind: ChangeKind,
    object: Arc<Stored>,
    previous: Option<Arc<Stored>>,
}

impl Feed {
    pub(crate) fn new(store: Arc<Store>, registry: Arc<Registry>) -> Self {
        let (cursor, _) = store.everything();
        let (ready, resources, registered) = (VecDeque::new(), BTreeMap::new(), registry.changes());
        let mut feed = Self { store, registry, cursor, ready, snapshot: 0, resources, registered };
        feed.restart();
        feed
    }

    /// Returns whether the whole snapshot has been returned.
    pub fn is_synced(&self) -> bool {
        self.snapshot == 0
    }

    /// Returns a signal for the changes of this feed.
    pub fn signal(&self) -> FeedSignal {
        FeedSignal(self.cursor.clone())
    }

    /// Waits for the next change. Cancel safe: no change is lost.
    ///
    /// # Errors
    /// Returns [`Lagged`] if the reader was too slow. The next call begins a new snapshot.
    pub async fn next(&mut self) -> Result<Change, Lagged> {
        loop {
            if let Some(change) = self.try_next()? {
                return Ok(change);
            }
            if !self.cursor.wait().await {
                // The feed owns the store, so this can't happen.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the next change, without waiting.
    ///
    /// # Errors
    /// The same as those of [`Feed::next`].
    pub fn try_next(&mut self) -> Result<Option<Change>, Lagged> {
        loop {
            while let Some(Pending { storage, kind, object, previous }) = self.ready.pop_front() {
                self.snapshot = self.snapshot.saturating_sub(1);
                if let Some(resource) = self.resource(&storage) {
                    let change = Change::new(kind, object.revision(), resource, StoredObject(object));
                    return Ok(Some(Change { previous: previous.map(StoredObject), ..change }));
                }
            }
            match self.cursor.read(&self.store, BATCH) {
                Ok(events) if events.is_empty() => return Ok(None),
                Ok(events) => self.ready.extend(events.iter().map(|event| Pending {
                    storage: event.storage.clone(),
                    kind: event.object.change(),
                    object: event.object.clone(),
                    previous: event.previous.clone(),
                })),
                Err(_) => {
                    self.restart();
                    return Err(Lagged);
                }
            }
        }
    }

    fn restart(&mut self) {
        let (cursor, existing) = self.store.everything();
        self.cursor = cursor;
        self.ready.clear();
        for (storage, objects) in existing {
            self.ready.extend(objects.iter().map(|(_, object)| Pending {
                storage: storage.clone(),
                kind: ChangeKind::Added,
                object: object.clone(),
                previous: None,
            }));
        }
        self.snapshot = self.ready.len();
    }

    fn resource(&mut self, storage: &Arc<str>) -> Option<Arc<Resource>> {
        if self.registered.has_changed().is_ok_and(|changed| changed) {
            self.registered.mark_unchanged();
            for (storage, seen) in &mut self.resources {
                if let Some(entry) = entry(&self.registry, storage) {
                    *seen = entry;
                }
            }
        }
        if let Some(seen) = self.resources.get(storage) {
            return Some(seen.clone());
        }
        let entry = entry(&self.registry, storage)?;
        self.resources.insert(storage.clone(), entry.clone());
        Some(entry)
    }
}

/// Returns the entry of a stored resource: that of its storage version or, if there is none, the first.
fn entry(registry: &Registry, storage: &str) -> Option<Arc<Resource>> {
    let is_stored = |entry: &Resource| &*entry.storage == storage && codec::is_storage_version(entry);
    registry.first(is_stored).or_else(|| registry.first(|entry| &*entry.storage == storage))
}
