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

/// The first line of every kubeconfig that kubewright writes. Files that start with it may be replaced.
const MARK: &str = "# written by kubewright cluster; replaced at every start, removed at the end";

/// A locked kubeconfig on disk. Dropping it removes the file, and the directory if one was created for it.
#[derive(Debug)]
pub(crate) struct KubeconfigFile {
    // Declared first, so that the file is removed before its directory.
    file: LockedFile,
    _directory: Option<TempDir>,
}

impl KubeconfigFile {
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
        let parent = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).with_context(|| format!("create the directory {}", parent.display()))?;
        let content = format!("{MARK}\n{content}");
        loop {
            let other = "choose another path with --kubeconfig";
            match clear(&path, MARK)? {
                Holder::None => {}
                Holder::Process => bail!(
                    "{} is in use by a cluster that is still running: stop that cluster, or {other}",
                    path.display()
                ),
                Holder::Foreign => {
                    bail!("{} exists and was not written by kubewright: {other}, or remove it", path.display())
                }
            }
            if let Some(file) = LockedFile::create(&path, &content)? {
                return Ok(Self { file, _directory: directory });
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }
}

/// Returns whether a text is a kubeconfig that kubewright has written.
pub(super) fn is_kubeconfig(text: &str) -> bool {
    text.starts_with(MARK)
}

/// The target of a path.
#[derive(Debug, PartialEq)]
pub(super) enum Holder {
    /// No file, or a file of a process that has ended.
    None,
    /// A file of a process that is still running.
    Process,
    /// A file that kubewright did not write.
    Foreign,
}

/// A file that is locked as long as it exists. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct LockedFile {
    path: PathBuf,
    /// The file, which holds the lock.
    file: File,
}

impl LockedFile {
    /// Creates a file, or returns `None` if there is one already.
    pub(super) fn create(path: &Path, content: &str) -> Result<Option<Self>> {
        let failed = || format!("write {}", path.display());
        let parent = path.parent().unwrap_or(Path::new("."));
        // The file gets its name together with its content and its lock, so that other processes never see an
        // incomplete file.
        let mut file = tempfile::Builder::new().prefix(".kubeconfig-").tempfile_in(parent).with_context(failed)?;
        writeln!(file, "{content}").with_context(failed)?;
        file.as_file().lock().with_context(|| format!("lock {}", path.display()))?;
        match file.persist_noclobber(path) {
            Ok(file) => Ok(Some(Self { path: path.to_owned(), file })),
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error.error).with_context(failed),
        }
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Best effort: nothing depends on the removal of the file.
        if is_at(&self.file, &self.path).is_ok_and(|is| is) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns whose kubeconfig is at `path`.
pub(super) fn holder(path: &Path) -> Result<Holder> {
    open(path, MARK).map(|(holder, _)| holder)
}

/// Removes a file that an earlier process left at `path`, and returns whose file is there.
pub(super) fn clear(path: &Path, mark: &str) -> Result<Holder> {
    let (holder, file) = open(path, mark)?;
    if let Some(file) = file {
        let failed = || format!("remove {}", path.display());
        if is_at(&file, path).with_context(failed)? {
            fs::remove_file(path).with_context(failed)?;
        }
    }
    Ok(holder)
}

/// Opens and locks a file that an earlier process left at `path`.
fn open(path: &Path, mark: &str) -> Result<(Holder, Option<File>)> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Holder::None, None)),
        // kubectl's lock files are readable by nobody.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok((Holder::Foreign, None)),
        Err(error) => return Err(error).with_context(|| format!("open {}", path.display())),
        Ok(file) => file,
    };
    let mut start = String::new();
    // A file that is not text was not written by kubewright; `start` then remains too short.
    let _ = (&file).take(mark.len() as u64).read_to_string(&mut start);
    if start != mark {
        return Ok((Holder::Foreign, None));
    }
    match file.try_lock() {
        Ok(()) => Ok((Holder::None, Some(file))),
        Err(TryLockError::WouldBlock) => Ok((Holder::Process, None)),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", path.display())),
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
        let kubeconfig = KubeconfigFile::write(None, "kind: Config").unwrap();
        let path = kubeconfig.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_to_string(&path).unwrap().ends_with("kind: Config\n"));
        drop(kubeconfig);
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn a_stale_kubeconfig_is_replaced_and_a_foreign_file_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        fs::write(&path, format!("{MARK}\nold")).unwrap();
        drop(KubeconfigFile::write(Some(&path), "new").unwrap());
        assert!(!path.exists());

        fs::write(&path, "kind: Config").unwrap();
        let error = KubeconfigFile::write(Some(&path), "new").unwrap_err();
        assert!(error.to_string().contains("was not written by kubewright"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "kind: Config");
    }

    #[test]
    fn a_kubeconfig_in_use_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let first = KubeconfigFile::write(Some(&path), "first").unwrap();
        let error = KubeconfigFile::write(Some(&path), "second").unwrap_err().to_string();
        assert!(error.contains("still running: stop that cluster, or choose another path"), "{error}");
        assert!(fs::read_to_string(&path).unwrap().ends_with("first\n"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "the refused one leaves nothing");
        drop(first);
        drop(KubeconfigFile::write(Some(&path), "second").unwrap());
    }

    #[test]
    fn a_kubeconfig_that_replaced_ours_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let first = KubeconfigFile::write(Some(&path), "first").unwrap();
        fs::remove_file(&path).unwrap();
        let second = KubeconfigFile::write(Some(&path), "second").unwrap();
        drop(first);
        assert!(fs::read_to_string(second.path()).unwrap().ends_with("second\n"));
    }
}
