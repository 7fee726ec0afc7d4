//! The kubeconfig file: written readable by its owner alone, never over somebody else's, removed at the end.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

/// The first line of every file we write, by which we know that we may replace it.
const MARK: &str = "# written by kubewright cluster; replaced at every start, removed at the end";

/// The extension that says where an operator shows its traces that is no pod of the cluster.
const EXTENSION: &str = "kubewright";

/// What is put at the end of a kubeconfig to say so.
pub(crate) fn noted(traces: &str) -> String {
    format!("extensions:\n- name: {EXTENSION}\n  extension:\n    traces: {traces}\n")
}

/// What a kubeconfig says of it.
pub(crate) fn traces(kubeconfig: &kube::config::Kubeconfig) -> Option<String> {
    let mut extensions = kubeconfig.extensions.iter().flatten();
    let ours = extensions.find(|extension| extension.name == EXTENSION)?;
    ours.extension["traces"].as_str().map(Into::into)
}

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
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
        }
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
    fn where_traces_are_is_noted() {
        let text = format!("apiVersion: v1\nkind: Config\n{}", noted("http://127.0.0.1:1"));
        let read = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(traces(&read).as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(traces(&kube::config::Kubeconfig::default()), None);
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
