//! The directory of a node, and the removal of directories that killed clusters have left behind.
//!
//! The directory contains a file that is locked during the lifetime of the cluster, and that contains the mark of the
//! node's processes. The system releases the lock when the cluster's process ends for any reason. A directory whose
//! lock is free therefore belongs to a cluster that was killed, and the next cluster that starts removes it.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use kubewright_apimachinery::random::Random;
use rustix::process::geteuid;

use super::{control_group, mounts, process::kill_left};

/// The prefix of node directories in the temporary directory.
const PREFIX: &str = "kubewright-";
/// The name of the locked file.
const LOCK: &str = "lock";
/// The number of attempts to remove a directory, during which the last lines of a log may still be written.
const TRIES: usize = 10;

/// A node's directory. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct NodeDirectory {
    path: PathBuf,
    /// Held for as long as the directory is in use.
    _lock: File,
}

impl NodeDirectory {
    /// Creates a directory in `root` for a node whose processes have the mark `id`.
    pub(crate) fn new(root: &Path, id: &str) -> io::Result<Self> {
        // Not from the cluster's generator: clusters of the same seed may run at the same time.
        let path = root.join(format!("{PREFIX}{}", Random::from_entropy().suffix(10)));
        DirBuilder::new().mode(0o700).create(&path)?;
        match lock(&path, id) {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err(error) => {
                remove(&path);
                Err(error)
            }
        }
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for NodeDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Returns whether a path is below the directory of a node, of this or another cluster.
pub(crate) fn is_below(path: &Path) -> bool {
    let is_node = |path: &Path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX)) && path.join(LOCK).exists()
    };
    path.ancestors().skip(1).any(is_node)
}

/// Creates the locked file.
fn lock(directory: &Path, id: &str) -> io::Result<File> {
    // The file gets its final name only after it is locked, so that no other cluster mistakes the directory for an
    // abandoned one.
    let fresh = directory.join("lock.new");
    let mut lock = File::create_new(&fresh)?;
    lock.lock()?;
    lock.write_all(id.as_bytes())?;
    fs::rename(fresh, directory.join(LOCK))?;
    Ok(lock)
}

fn remove(path: &Path) {
    for _ in 0..TRIES {
        match mounts::remove_tree(path) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return tracing::warn!(%error, path = %path.display(), "failed to remove the directory of the pods");
            }
            _ => return,
        }
    }
}

/// Kills the processes and removes the directories of this user's killed clusters. Blocks until that is done.
pub(crate) fn remove_abandoned(root: &Path) {
    let folders = fs::read_dir(root).into_iter().flatten().flatten();
    for folder in folders.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = folder.path();
        if let Err(error) = remove_if_abandoned(&path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::debug!(%error, path = %path.display(), "failed to check a directory for an abandoned cluster");
        }
    }
}

/// Removes a directory if its cluster is gone.
fn remove_if_abandoned(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        return Ok(());
    }
    let lock = File::open(path.join(LOCK))?;
    if lock.try_lock().is_err() {
        return Ok(());
    }
    let id = io::read_to_string(&lock)?;
    tracing::info!(path = %path.display(), "removing the directory of a killed cluster");
    if !id.is_empty() {
        kill_left(&id);
        control_group::remove_left(&id);
    }
    remove(path);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn only_abandoned_directories_are_removed() {
        let root = tempfile::tempdir().expect("a folder");
        let living = NodeDirectory::new(root.path(), "a mark of nobody").expect("a folder");
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
        let mut command = Command::new("sh");
        command.args(["-c", "echo; sleep 60"]).env("KUBEWRIGHT_NODE", &id).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        // A process that has just been started doesn't show its environment yet.
        let line = process.stdout.as_mut().map(|stdout| BufReader::new(stdout).read_line(&mut String::new()));
        assert!(matches!(line, Some(Ok(1))), "{line:?}");
        remove_abandoned(root.path());
        assert_eq!((left.exists(), foreign.exists(), beginning.exists()), (false, true, true));
        assert!(living.path().exists());
        // On systems that don't show the environment of processes, the test has to end the process.
        if cfg!(not(target_os = "linux")) {
            process.kill().expect("it runs");
        }
        assert!(!process.wait().expect("it ends").success(), "killed");
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }
}
