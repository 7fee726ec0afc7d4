//! Snapshots, which replace a log.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::{
    directory::Directory,
    record::{FileKind, Record, Written},
};
use crate::storage::Objects;

/// The writing of a snapshot. Dropping it stops it and waits for its thread.
#[derive(Debug)]
pub(super) struct Compaction {
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Compaction {
    /// Starts to write a snapshot, and sets `length` to its length when it is complete.
    pub(super) fn start(
        directory: Arc<Directory>,
        revision: u64,
        objects: Vec<(Arc<str>, Objects)>,
        length: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        let work = move || match directory.create(FileKind::Snapshot, revision, |file| write(file, &objects, &stop)) {
            Ok((file, ())) => {
                length.store(file.metadata().map_or(0, |metadata| metadata.len()), Ordering::Relaxed);
                directory.remove_replaced(revision);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let path = directory.path().display().to_string();
                tracing::error!(%error, path, "failed to write a snapshot; the logs are kept");
            }
        };
        let thread = thread::Builder::new().name("kubewright-snapshot".into()).spawn(work)?;
        Ok(Self { stopped, thread: Some(thread) })
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end.
    pub(super) fn wait(&mut self) {
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes a snapshot has panicked");
        }
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.wait();
    }
}

/// Writes the objects. Fails with [`io::ErrorKind::Interrupted`] if it is stopped.
fn write(file: &mut File, objects: &[(Arc<str>, Objects)], stopped: &AtomicBool) -> io::Result<()> {
    let (mut file, mut buffer, mut count) = (BufWriter::with_capacity(1 << 20, file), Vec::new(), 0);
    for (storage, objects) in objects {
        for (key, object) in objects.iter() {
            if stopped.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let text = object.json();
            Record::Put(Written::new(storage, key, object.revision(), &text)).encode(&mut buffer)?;
            file.write_all(&buffer)?;
            count += 1;
        }
    }
    Record::End(count).encode(&mut buffer)?;
    file.write_all(&buffer)?;
    file.flush()
}
