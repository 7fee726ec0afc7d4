//! The files of a data directory, and the lock that keeps other servers out.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

use super::{
    error::DataDirError,
    record::{FileKind, first_line},
};

/// The name of the locked file, which contains the ID of the process.
const LOCK: &str = "lock";
/// The end of the names of files that aren't complete yet.
const UNFINISHED: &str = ".tmp";

/// A directory that this server holds.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The system releases the lock however the process ends.
    lock: File,
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A process that is being started has the file too, until it executes its program.
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, path = %self.path.display(), "failed to unlock the data directory");
        }
    }
}

/// The revisions of the files of a directory, in order.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) snapshots: Vec<u64>,
    pub(super) logs: Vec<u64>,
    /// Files that were never completed.
    unfinished: Vec<PathBuf>,
}

impl Directory {
    /// Creates the directory if it doesn't exist, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, DataDirError> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path).map_err(DataDirError::io("create", path))?;
        let file = path.join(LOCK);
        let failed = || DataDirError::io("lock", &file);
        let mut lock = private().read(true).write(true).open(&file).map_err(failed())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let pid = lock.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(DataDirError::InUse { path: path.to_owned(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(failed()(error)),
        }
        let name = |lock: &mut File| {
            lock.set_len(0)?;
            lock.rewind()?;
            lock.write_all(format!("{}\n", std::process::id()).as_bytes())
        };
        name(&mut lock).map_err(failed())?;
        Ok(Self { path: path.to_owned(), lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file.
    pub(super) fn file(&self, kind: FileKind, revision: u64) -> PathBuf {
        self.path.join(format!("{}-{revision:020}", kind.name()))
    }

    /// Lists the files.
    pub(super) fn files(&self) -> Result<Files, DataDirError> {
        let mut files = Files::default();
        for entry in fs::read_dir(&self.path).map_err(DataDirError::io("read", &self.path))? {
            let name = entry.map_err(DataDirError::io("read", &self.path))?.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(UNFINISHED) {
                files.unfinished.push(self.path.join(&*name));
            }
            let revision = |kind: FileKind| name.strip_prefix(kind.name())?.strip_prefix('-')?.parse::<u64>().ok();
            files.snapshots.extend(revision(FileKind::Snapshot));
            files.logs.extend(revision(FileKind::Log));
        }
        files.snapshots.sort_unstable();
        files.logs.sort_unstable();
        Ok(files)
    }

    /// Removes the files that newer ones replace: snapshots and logs of earlier revisions than that of the latest
    /// snapshot, and files that were never completed.
    pub(super) fn remove_replaced(&self, snapshot: u64) {
        let remove = |path: &Path| {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(%error, path = %path.display(), "failed to remove an old file of the data directory");
            }
        };
        let Ok(files) = self.files() else { return };
        files.unfinished.iter().for_each(|path| remove(path));
        for (kind, revisions) in [(FileKind::Snapshot, files.snapshots), (FileKind::Log, files.logs)] {
            for revision in revisions.into_iter().filter(|revision| *revision < snapshot) {
                remove(&self.file(kind, revision));
            }
        }
    }

    /// Creates a file with its first line, which `write` continues. It gets its name when it is complete and on the
    /// disk.
    pub(super) fn create<T>(
        &self,
        kind: FileKind,
        revision: u64,
        write: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> io::Result<(File, T)> {
        let path = self.file(kind, revision);
        let unfinished = path.with_extension(&UNFINISHED[1..]);
        let make = || {
            let _ = fs::remove_file(&unfinished);
            let mut file = private().append(true).open(&unfinished)?;
            file.write_all(first_line(kind, revision).as_bytes())?;
            let result = write(&mut file)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            File::open(&self.path)?.sync_all()?;
            Ok((file, result))
        };
        make().inspect_err(|_| drop(fs::remove_file(&unfinished)))
    }
}

/// Options of files that only this user can read, since they contain Secrets.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
