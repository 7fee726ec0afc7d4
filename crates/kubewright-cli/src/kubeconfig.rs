//! The kubeconfig file of an embedded cluster. It is only readable by its owner, and removed with the cluster.
//!
//! Files that kubewright did not write are never replaced, and neither is the file of a cluster that is still running.
//! The process that wrote a file holds a lock on it (`flock`), which the operating system releases however the process
//! ends.

use std::{
    fs::{self, File, TryLockError},
    io::{ErrorKind, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// The first line of every file that kubewright writes. Files that start with it may be replaced.
const MARK: &str = "# written by kubewright cluster; replaced at every start, removed at the end";

/// The kubeconfig extension with the address of an operator's traces, for operators that are not pods of the cluster.
const EXTENSION: &str = "kubewright";

/// Returns the lines that add the address of an operator's traces to a kubeconfig.
pub(crate) fn traces_extension(address: &str) -> String {
    format!("extensions:\n- name: {EXTENSION}\n  extension:\n    traces: {address}\n")
}

/// Returns the address of an operator's traces, if a kubeconfig has one.
pub(crate) fn traces(kubeconfig: &kube::config::Kubeconfig) -> Option<String> {
    let mut extensions = kubeconfig.extensions.iter().flatten();
    let ours = extensions.find(|extension| extension.name == EXTENSION)?;
    ours.extension["traces"].as_str().map(Into::into)
}

/// A locked kubeconfig on disk. Dropping it removes the file, and the directory if one was created for it.
#[derive(Debug)]
pub(crate) struct Kubeconfig {
    path: PathBuf,
    /// The file, which holds the lock.
    file: File,
    _directory: Option<TempDir>,
}

impl Kubeconfig {
    /// Writes to `path`, or to a new temporary directory if it is `None`.
    pub(crate) fn write(path: Option<&Path>, content: &str) -> Result<Self> {
        let (path, directory) = match path {
            Some(path) => (std::path::absolute(path)?, None),
            None => {
                let directory = tempfile::Builder::new()
                    .prefix("kubewright-")
                    .tempdir()
                    .context("create a directory for the kubeconfig")?;
                (directory.path().join("kubeconfig"), Some(directory))
            }
        };
        let failed = || format!("write the kubeconfig {}", path.display());
        let parent = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).with_context(|| format!("create the directory {}", parent.display()))?;
        // The file gets its name together with its content and its lock, so that other processes never see an
        // incomplete file.
        let mut file = tempfile::Builder::new().prefix(".kubeconfig-").tempfile_in(parent).with_context(failed)?;
        writeln!(file, "{MARK}\n{content}").with_context(failed)?;
        file.as_file().lock().with_context(|| format!("lock the kubeconfig {}", path.display()))?;
        loop {
            remove_stale(&path)?;
            match file.persist_noclobber(&path) {
                Ok(file) => return Ok(Self { path, file, _directory: directory }),
                Err(error) if error.error.kind() == ErrorKind::AlreadyExists => file = error.file,
                Err(error) => return Err(error.error).with_context(failed),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        // Best effort: nothing depends on the removal of the file.
        if is_at(&self.file, &self.path).is_ok_and(|is| is) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a file that an earlier process left at `path`. It is an error if any other file is there, but not if there
/// is no file.
fn remove_stale(path: &Path) -> Result<()> {
    let mut start = String::new();
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("open {}", path.display())),
        Ok(file) => file,
    };
    // A file that is not text was not written by kubewright; `start` then remains too short.
    let _ = (&file).take(MARK.len() as u64).read_to_string(&mut start);
    if start != MARK {
        bail!(
            "{} exists and was not written by kubewright: choose another path with --kubeconfig, or remove it",
            path.display()
        );
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(
            "{} is in use by a cluster that is still running: stop that cluster, or choose another path with --kubeconfig",
            path.display()
        ),
        Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("lock {}", path.display())),
    }
    let failed = || format!("remove {}", path.display());
    match is_at(&file, path).with_context(failed)? {
        true => fs::remove_file(path).with_context(failed),
        false => Ok(()),
    }
}

/// Returns whether `path` still refers to an open file.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let own = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_kubeconfig_is_private_and_removed_on_drop() {
        let kubeconfig = Kubeconfig::write(None, "kind: Config").unwrap();
        let path = kubeconfig.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_to_string(&path).unwrap().ends_with("kind: Config\n"));
        drop(kubeconfig);
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn the_address_of_traces_is_read_back() {
        let text = format!("apiVersion: v1\nkind: Config\n{}", traces_extension("http://127.0.0.1:1"));
        let read = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(traces(&read).as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(traces(&kube::config::Kubeconfig::default()), None);
    }

    #[test]
    fn a_stale_kubeconfig_is_replaced_and_a_foreign_file_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        fs::write(&path, format!("{MARK}\nold")).unwrap();
        drop(Kubeconfig::write(Some(&path), "new").unwrap());
        assert!(!path.exists());

        fs::write(&path, "kind: Config").unwrap();
        let error = Kubeconfig::write(Some(&path), "new").unwrap_err();
        assert!(error.to_string().contains("was not written by kubewright"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "kind: Config");
    }

    #[test]
    fn a_kubeconfig_in_use_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let first = Kubeconfig::write(Some(&path), "first").unwrap();
        let error = Kubeconfig::write(Some(&path), "second").unwrap_err().to_string();
        assert!(error.contains("still running: stop that cluster, or choose another path"), "{error}");
        assert!(fs::read_to_string(&path).unwrap().ends_with("first\n"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "the refused one leaves nothing");
        drop(first);
        drop(Kubeconfig::write(Some(&path), "second").unwrap());
    }

    #[test]
    fn a_kubeconfig_that_replaced_ours_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let first = Kubeconfig::write(Some(&path), "first").unwrap();
        fs::remove_file(&path).unwrap();
        let second = Kubeconfig::write(Some(&path), "second").unwrap();
        drop(first);
        assert!(fs::read_to_string(second.path()).unwrap().ends_with("second\n"));
    }
}
