//! Bringing written changes to the disk, in a thread: one `fsync` for all changes that were written before it.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use kubewright_apimachinery::watch;
use parking_lot::{Condvar, Mutex};

use super::error::WriteError;

/// The interval at which written changes are brought to the disk.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a change that was answered survives. In both cases it survives that the process is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// A change is answered when the operating system has it, and brought to the disk every second. If the machine
    /// fails, the changes of about the last second are lost; no resource version is used twice even then.
    #[default]
    Process,
    /// A change is answered when it is on the disk (`fsync`), as by etcd. Concurrent changes share one `fsync`.
    Machine,
}

/// The file that is synced, and who waits.
#[derive(Debug)]
struct Work {
    path: PathBuf,
    file: Arc<File>,
    requested: bool,
    stopped: bool,
}

/// Brings written changes to the disk.
#[derive(Debug)]
pub(crate) struct Sync {
    durability: Durability,
    /// The number of changes written.
    written: AtomicU64,
    /// The number of changes on the disk.
    synced: watch::Sender<u64>,
    work: Mutex<Work>,
    requested: Condvar,
    /// Why no further changes can be written.
    failed: OnceLock<WriteError>,
}

impl Sync {
    pub(super) fn new(path: &Path, file: Arc<File>, durability: Durability) -> Self {
        Self {
            durability,
            written: AtomicU64::new(0),
            synced: watch::Sender::new(0),
            work: Mutex::new(Work { path: path.to_owned(), file, requested: false, stopped: false }),
            requested: Condvar::new(),
            failed: OnceLock::new(),
        }
    }

    /// Starts the thread, which runs until [`Sync::stop`].
    pub(super) fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let sync = self.clone();
        thread::Builder::new().name("kubewright-sync".into()).spawn(move || while sync.run_once() {})
    }

    /// Ends the thread after it has synced everything.
    pub(super) fn stop(&self) {
        self.work.lock().stopped = true;
        self.requested.notify_one();
    }

    /// Counts a written change.
    pub(super) fn appended(&self) {
        self.written.fetch_add(1, Ordering::Release);
    }

    /// Continues with another file. Everything written to the previous one has been synced.
    pub(super) fn replace(&self, path: &Path, file: Arc<File>) {
        let mut work = self.work.lock();
        (work.path, work.file) = (path.to_owned(), file);
    }

    /// Refuses all further changes.
    pub(super) fn fail(&self, error: WriteError) {
        // The first error remains.
        let _ = self.failed.set(error);
        self.synced.send_modify(|_| {});
    }

    /// Returns the error if changes are refused.
    pub(super) fn check(&self) -> Result<(), WriteError> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Waits until all changes that were written before are on the disk, if the durability demands it.
    pub(crate) async fn wait(&self) -> Result<(), WriteError> {
        if self.durability == Durability::Process {
            return Ok(());
        }
        let target = self.written.load(Ordering::Acquire);
        let mut synced = self.synced.subscribe();
        while *synced.borrow_and_update() < target {
            self.check()?;
            self.work.lock().requested = true;
            self.requested.notify_one();
            if synced.changed().await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Waits for work and does it. Returns whether there may be more.
    fn run_once(&self) -> bool {
        let (path, file, target, stopped) = {
            let mut work = self.work.lock();
            if !work.requested && !work.stopped {
                self.requested.wait_for(&mut work, INTERVAL);
            }
            work.requested = false;
            // What was written to an earlier file is on the disk already.
            (work.path.clone(), work.file.clone(), self.written.load(Ordering::Acquire), work.stopped)
        };
        if target > *self.synced.borrow() {
            match file.sync_data() {
                Ok(()) => drop(self.synced.send_replace(target)),
                Err(error) => {
                    tracing::error!(%error, path = %path.display(), "failed to bring changes to the disk");
                    // What was written may be lost, and a later success wouldn't tell.
                    self.fail(WriteError { action: "sync", path, error: Arc::new(error) });
                }
            }
        }
        !stopped
    }
}
