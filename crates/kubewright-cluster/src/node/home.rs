//! The folder of a node, and what killed clusters have left.
//!
//! The folder has a file that is locked for as long as the cluster lives, and that says by which mark the node's processes are
//! known. The system gives the lock up when the cluster's process ends, however that ends: a folder whose lock can be had is
//! what is left of a cluster that was killed, and the next one to start clears it away.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    os::unix::fs::MetadataExt,
    path::Path,
};

use rustix::process::geteuid;
use tempfile::TempDir;

use super::process::kill_left;

/// How the folders of nodes begin, among others in the temporary directory.
const PREFIX: &str = "kubewright-";
/// The file that is locked.
const LOCK: &str = "lock";
/// How often the removal of a folder is tried, in which the last lines of a log may just be written.
const TRIES: usize = 10;

/// A node's folder. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Home {
    directory: Option<TempDir>,
    /// Held for as long as the folder is in use.
    _lock: File,
}

impl Home {
    /// Makes a folder in `root` for a node whose processes bear the mark `id`.
    pub(crate) fn new(root: &Path, id: &str) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(root)?;
        // The file has its name only once it is locked, so that nobody takes the folder for one that was left.
        let fresh = directory.path().join("lock.new");
        let mut lock = File::create_new(&fresh)?;
        lock.lock()?;
        lock.write_all(id.as_bytes())?;
        fs::rename(fresh, directory.path().join(LOCK))?;
        Ok(Self { directory: Some(directory), _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.directory.as_ref().map_or(Path::new(""), TempDir::path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(directory) = self.directory.take() {
            remove(&directory.keep());
        }
    }
}

fn remove(path: &Path) {
    for _ in 0..TRIES {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return tracing::warn!(%error, path = %path.display(), "the pods' directory can't be removed");
            }
            _ => return,
        }
    }
}

/// Ends the processes and removes the folders of this user's clusters that were killed. It blocks for as long as that takes.
pub(crate) fn sweep(root: &Path) {
    let folders = fs::read_dir(root).into_iter().flatten().flatten();
    for folder in folders.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = folder.path();
        if let Err(error) = clear(&path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::debug!(%error, path = %path.display(), "what a cluster may have left can't be looked at");
        }
    }
}

/// Clears a folder away if its cluster is gone.
fn clear(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        return Ok(());
    }
    let lock = File::open(path.join(LOCK))?;
    if lock.try_lock().is_err() {
        return Ok(());
    }
    let id = io::read_to_string(&lock)?;
    tracing::info!(path = %path.display(), "clearing away what a killed cluster has left");
    if !id.is_empty() {
        kill_left(&id);
    }
    remove(path);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use kubewright_apimachinery::random::Random;

    use super::*;

    #[test]
    fn only_what_nobody_holds_is_swept() {
        let root = tempfile::tempdir().expect("a folder");
        let living = Home::new(root.path(), "a mark of nobody").expect("a folder");
        let folder = |name: &str, id: Option<&str>| {
            let path = root.path().join(name);
            fs::create_dir(&path).expect("made");
            if let Some(id) = id {
                fs::write(path.join(LOCK), id).expect("written");
            }
            path
        };
        let id = Random::from_entropy().uuid();
        let left = folder("kubewright-left", Some(&id));
        let (foreign, beginning) = (folder("other", Some(&id)), folder("kubewright-new", None));
        let mut process = Command::new("sleep").arg("1000").env("KUBEWRIGHT_NODE", &id).spawn().expect("it starts");
        sweep(root.path());
        assert_eq!((left.exists(), foreign.exists(), beginning.exists()), (false, true, true));
        assert!(living.path().exists());
        // On systems where it can't be found, it is this test's to end.
        if cfg!(not(target_os = "linux")) {
            process.kill().expect("it runs");
        }
        assert!(!process.wait().expect("it ends").success(), "killed");
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }
}
