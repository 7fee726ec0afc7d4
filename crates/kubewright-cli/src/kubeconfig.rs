//! The kubeconfig file: written readable by its owner alone, never over somebody else's, removed at the end.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

/// The first line of every file we write, by which we know that we may replace it.
const MARK: &str = "# written by kubewright cluster; replaced at every start, removed at the end";

/// A kubeconfig on disk. Dropping it removes the file, and the folder made for it.
#[derive(Debug)]
pub(crate) struct Kubeconfig {
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Kubeconfig {
    /// Writes to `path`, or where none is given to a fresh folder of its own.
    pub(crate) fn write(path: Option<&Path>, content: &str) -> Result<Self> {
        let (path, folder) = match path {
            Some(path) => (std::path::absolute(path)?, None),
            None => {
                let folder = tempfile::Builder::new()
                    .prefix("kubewright-")
                    .tempdir()
                    .context("make a folder for the kubeconfig")?;
                (folder.path().join("kubeconfig"), Some(folder))
            }
        };
        remove_ours(&path)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("write the kubeconfig {}", path.display()))?;
        writeln!(file, "{MARK}\n{content}").with_context(|| format!("write the kubeconfig {}", path.display()))?;
        Ok(Self { path, _folder: folder })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        // Nothing can be done about a file that can't be removed on the way out, and nothing depends on it.
        let _ = remove_ours(&self.path);
    }
}

/// Removes the file if it is one of ours; a foreign one is an error, an absent one is fine.
fn remove_ours(path: &Path) -> Result<()> {
    let mut start = String::new();
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("look at {}", path.display())),
        // What isn't text is not ours either, so a failed read says enough by leaving `start` short.
        Ok(file) => _ = file.take(MARK.len() as u64).read_to_string(&mut start),
    }
    if start != MARK {
        bail!(
            "{} exists and was not written by kubewright: choose another path with --kubeconfig, or remove it",
            path.display()
        );
    }
    std::fs::remove_file(path).with_context(|| format!("remove {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_kubeconfig_is_private_and_goes_with_its_owner() {
        let kubeconfig = Kubeconfig::write(None, "kind: Config").unwrap();
        let path = kubeconfig.path().to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("kind: Config\n"));
        drop(kubeconfig);
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn a_leftover_of_ours_is_replaced_and_a_foreign_file_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::mem::forget(Kubeconfig::write(Some(&path), "old").unwrap());
        drop(Kubeconfig::write(Some(&path), "new").unwrap());
        assert!(!path.exists());

        std::fs::write(&path, "kind: Config").unwrap();
        let error = Kubeconfig::write(Some(&path), "new").unwrap_err();
        assert!(error.to_string().contains("was not written by kubewright"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kind: Config");
    }
}
