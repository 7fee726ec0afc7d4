//! The feed: every change of every object, for controllers that live in the server's own process.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    registry::{Registry, Resource},
    server::Inner,
    storage::{ChangeKind, Cursor, Stored},
};

/// The most events that are read from the log at once.
const BATCH: usize = 256;

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The revision at which it did.
    pub revision: u64,
    /// A registry entry through which the object can be reached; that of the stored version, if it is served.
    pub resource: Arc<Resource>,
    /// The object after the change, in its stored form; after a removal, as it was last.
    pub object: Arc<Value>,
    /// The object before the change. Absent for additions, and for all that a snapshot tells.
    pub previous: Option<Arc<Value>>,
}

/// The reader was too slow, and changes were lost. What it knows is void: the feed begins anew with a snapshot of all that
/// exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader of the feed was too slow and must begin anew")]
pub struct Lagged;

/// Every change of every stored object, in the one revision order, beginning with a snapshot of all that exists.
#[derive(Debug)]
pub struct Feed {
    server: Arc<Inner>,
    cursor: Cursor,
    ready: VecDeque<Pending>,
    /// How many of `ready` are of the snapshot.
    snapshot: usize,
    /// The entries met so far: an object may be told of after its kind has gone.
    resources: BTreeMap<Arc<str>, Arc<Resource>>,
}

/// A change that is to be told.
#[derive(Debug)]
struct Pending {
    storage: Arc<str>,
    kind: ChangeKind,
    object: Arc<Stored>,
    previous: Option<Arc<Stored>>,
}

impl Feed {
    pub(crate) fn new(server: Arc<Inner>) -> Self {
        let (cursor, _) = server.store.everything();
        let mut feed = Self { server, cursor, ready: VecDeque::new(), snapshot: 0, resources: BTreeMap::new() };
        feed.restart();
        feed
    }

    /// Whether everything that existed when the feed began has been told.
    pub fn is_synced(&self) -> bool {
        self.snapshot == 0
    }

    /// The next change; waits for one. It can be cancelled without losing any.
    ///
    /// # Errors
    /// [`Lagged`] when the reader was too slow. The next call begins a new snapshot.
    pub async fn next(&mut self) -> Result<Change, Lagged> {
        loop {
            if let Some(change) = self.try_next()? {
                return Ok(change);
            }
            if !self.cursor.wait().await {
                // The store lives as long as this feed, so this cannot be; waiting is right if it could.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The next change, if there is one already.
    ///
    /// # Errors
    /// As [`Feed::next`].
    pub fn try_next(&mut self) -> Result<Option<Change>, Lagged> {
        loop {
            while let Some(Pending { storage, kind, object, previous }) = self.ready.pop_front() {
                self.snapshot = self.snapshot.saturating_sub(1);
                if let Some(resource) = self.resource(&storage) {
                    let (revision, object) = (object.revision(), object.value());
                    let previous = previous.map(|previous| previous.value());
                    return Ok(Some(Change { kind, revision, resource, object, previous }));
                }
            }
            match self.cursor.read(&self.server.store, BATCH) {
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
        let (cursor, existing) = self.server.store.everything();
        self.cursor = cursor;
        self.ready.clear();
        for (storage, objects) in existing {
            self.ready.extend(objects.values().map(|object| Pending {
                storage: storage.clone(),
                kind: ChangeKind::Added,
                object: object.clone(),
                previous: None,
            }));
        }
        self.snapshot = self.ready.len();
    }

    fn resource(&mut self, storage: &Arc<str>) -> Option<Arc<Resource>> {
        let found = entry(&self.server.registry, storage);
        match found {
            Some(entry) => {
                self.resources.insert(storage.clone(), entry.clone());
                Some(entry)
            }
            None => self.resources.get(storage).cloned(),
        }
    }
}

/// The entry of a stored resource: that of its stored version, or else any.
fn entry(registry: &Registry, storage: &str) -> Option<Arc<Resource>> {
    let all = registry.all();
    let mut entries = all.iter().filter(|entry| &*entry.storage == storage);
    let first = entries.next()?;
    let stored = std::iter::once(first).chain(entries).find(|entry| crate::convert::is_storage_version(entry));
    Some(stored.unwrap_or(first).clone())
}
