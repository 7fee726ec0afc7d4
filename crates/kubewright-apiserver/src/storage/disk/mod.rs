//! A data directory: a snapshot of the objects, and a log of the changes since.
//!
//! A change is appended to the log before the store makes it, so what anyone has read survives the end of the process,
//! however it ends. Whether it also survives the end of the machine depends on the [`Durability`].
//!
//! When the log is longer than the snapshot, it is replaced: a new log begins, and a thread writes a snapshot of the
//! objects at its beginning. The older files are removed when that is complete.

mod directory;
mod error;
mod record;
mod recovery;
mod snapshot;
mod sync;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use self::{
    directory::Directory,
    record::{FileKind, Record, Written},
    snapshot::Compaction,
};
pub use self::{error::DataDirError, sync::Durability};
pub(crate) use self::{error::WriteError, sync::Sync};
pub(super) use self::{
    record::Written as WrittenObject,
    recovery::{Restore, open},
};
use super::{Key, Objects, object::Stored};

/// The length of a log in bytes from which it is compacted, unless the snapshot is longer.
const COMPACT_AT: u64 = 16 << 20;

/// The settings of a data directory.
#[derive(Clone, Debug)]
pub(crate) struct DiskOptions {
    pub(crate) path: PathBuf,
    pub(crate) durability: Durability,
    /// The length of a log in bytes from which it is compacted.
    pub(crate) compact_at: u64,
}

impl DiskOptions {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), durability: Durability::default(), compact_at: COMPACT_AT }
    }
}

/// The log to which changes are appended. Dropping it closes the directory.
#[derive(Debug)]
pub(super) struct ChangeLog {
    directory: Arc<Directory>,
    path: PathBuf,
    file: Arc<File>,
    /// The length of the file up to the end of the last record.
    length: u64,
    /// The length from which the log is compacted next.
    compact_at: u64,
    options: DiskOptions,
    buffer: Vec<u8>,
    sync: Arc<Sync>,
    syncing: Option<JoinHandle<()>>,
    compaction: Option<Compaction>,
    /// The length of the latest snapshot in bytes.
    snapshot: Arc<AtomicU64>,
}

impl ChangeLog {
    /// Continues a log at its end.
    fn new(directory: Directory, revision: u64, file: File, length: u64, options: DiskOptions) -> io::Result<Self> {
        let path = directory.file(FileKind::Log, revision);
        let file = Arc::new(file);
        let sync = Arc::new(Sync::new(&path, file.clone(), options.durability));
        let syncing = Some(sync.start()?);
        Ok(Self {
            directory: Arc::new(directory),
            path,
            file,
            length,
            compact_at: options.compact_at,
            options,
            buffer: Vec::new(),
            sync,
            syncing,
            compaction: None,
            snapshot: Arc::default(),
        })
    }

    /// Returns the credentials of the server, which `make` returns at first.
    pub(super) fn credentials<E: From<DataDirError>>(
        &self,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        recovery::credentials(&self.directory, make)
    }

    /// Returns what brings changes to the disk.
    pub(super) fn sync(&self) -> Arc<Sync> {
        self.sync.clone()
    }

    /// Records a change, which then survives the end of the process.
    ///
    /// # Errors
    /// If it can't be written. The log is then as before, or refuses all further changes.
    pub(super) fn append_change(&mut self, storage: &str, key: &Key, object: &Stored) -> Result<(), WriteError> {
        let text = object.json();
        self.append(&Record::of_change(object.change(), Written::new(storage, key, object.revision(), &text)))
    }

    /// Records that the revision counter continues at a number and that earlier revisions can't be read.
    pub(super) fn append_floor(&mut self, revision: u64) -> Result<(), WriteError> {
        self.append(&Record::Floor(revision))
    }

    fn append(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        self.sync.check()?;
        let written = record.encode(&mut self.buffer).and_then(|()| (&*self.file).write_all(&self.buffer));
        if let Err(error) = written {
            let error = WriteError { action: "write", path: self.path.clone(), error: Arc::new(error) };
            // A part of the record may be in the file, which must end with a complete one.
            if let Err(broken) = self.file.set_len(self.length) {
                tracing::error!(error = %broken, path = %self.path.display(), "failed to shorten the log");
                self.sync.fail(error.clone());
            }
            return Err(error);
        }
        self.length += self.buffer.len() as u64;
        self.sync.appended();
        Ok(())
    }

    /// Returns whether the log is so long that it should be [compacted](Self::compact).
    pub(super) fn is_long(&self) -> bool {
        self.length >= self.compact_at.max(self.snapshot.load(Ordering::Relaxed))
            && self.compaction.as_ref().is_none_or(Compaction::is_finished)
    }

    /// Begins a new log, and writes a snapshot of all objects at this revision, in a thread.
    pub(super) fn compact(&mut self, revision: u64, objects: Vec<(Arc<str>, Objects)>) {
        let begin = || {
            // The new log counts only if the previous one is complete.
            self.file.sync_all()?;
            self.directory.create(FileKind::Log, revision, |file| Ok(file.metadata()?.len()))
        };
        let (file, length) = match begin() {
            Ok(begun) => begun,
            Err(error) => {
                tracing::error!(%error, path = %self.path.display(), "failed to compact the log");
                // The next attempt is made when as much was written again.
                self.compact_at = self.length + self.options.compact_at;
                return;
            }
        };
        (self.file, self.length, self.compact_at) = (Arc::new(file), length, self.options.compact_at);
        self.path = self.directory.file(FileKind::Log, revision);
        self.sync.replace(&self.path, self.file.clone());
        let compaction = Compaction::start(self.directory.clone(), revision, objects, self.snapshot.clone());
        self.compaction =
            compaction.inspect_err(|error| tracing::error!(%error, "failed to start the compaction of the log")).ok();
    }

    /// Waits until no compaction runs.
    #[cfg(test)]
    pub(super) fn wait_for_compaction(&mut self) {
        self.compaction.as_mut().map(Compaction::wait);
    }
}

impl Drop for ChangeLog {
    fn drop(&mut self) {
        drop(self.compaction.take());
        let closed = self.append(&Record::Closed);
        self.sync.stop();
        let synced = self.syncing.take().map(JoinHandle::join);
        if let Err(error) = closed {
            tracing::error!(%error, "failed to close the data directory");
        } else if synced.is_some_and(|ended| ended.is_err()) {
            tracing::error!(path = %self.path.display(), "the thread that syncs the log has panicked");
        }
    }
}
