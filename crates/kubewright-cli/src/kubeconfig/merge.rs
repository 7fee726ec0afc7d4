//! The kubeconfig of the user, to which a cluster's context is added while the cluster runs.
//!
//! The file is replaced as a whole, under the lock that kubectl takes (`config.lock` for `config`). What has been added
//! is recorded in the context itself, so that the next cluster removes what a killed one has left.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kubewright_manifests::yaml;
use serde_json::{Value, json};

use super::{
    edit,
    file::{Holder, LockedFile, clear, holder, is_kubeconfig},
};

/// The first line of a lock file of kubewright. kubectl's lock files are empty.
const LOCK_MARK: &str = "# locked by kubewright";
/// The number of attempts to take a lock, and the pause between two attempts. Other programs hold it for milliseconds.
const LOCK_ATTEMPTS: (usize, Duration) = (200, Duration::from_millis(50));

/// Returns the kubeconfig that kubectl adds contexts to: the first existing file of `$KUBECONFIG` or else its last one,
/// and `~/.kube/config` if the variable is not set.
pub(crate) fn user_kubeconfig(variable: Option<OsString>, home: Option<PathBuf>) -> Result<PathBuf> {
    let variable = variable.unwrap_or_default();
    let files = || std::env::split_paths(&variable).filter(|path| !path.as_os_str().is_empty());
    let chosen = files().find(|path| path.exists()).or_else(|| files().last());
    let path = chosen.or_else(|| home.map(|home| home.join(".kube/config")));
    let path = path.context("no kubeconfig to merge into: set KUBECONFIG or HOME")?;
    std::path::absolute(&path).with_context(|| format!("find the kubeconfig {}", path.display()))
}

/// A context in the kubeconfig of the user. Dropping it removes the context.
#[derive(Debug)]
pub(crate) struct MergedContext {
    path: PathBuf,
    context: String,
    /// The cluster's own kubeconfig.
    own: PathBuf,
    /// The content before and after the context was added. If the file hasn't changed since, its content before is
    /// restored to the byte.
    before: Option<String>,
    after: String,
    is_removed: bool,
}

impl MergedContext {
    /// Adds the context of a cluster to the kubeconfig at `path`. `own` is the content of the cluster's own kubeconfig,
    /// which is at `file`. Contexts of clusters that no longer run are removed.
    ///
    /// # Errors
    /// If the file can't be read, locked or written, or if it already has an entry of the same name.
    pub(crate) fn add(path: PathBuf, own: &Value, file: &Path, keep_context: bool) -> Result<Self> {
        let parent = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).with_context(|| format!("create the directory {}", parent.display()))?;
        let _lock = lock(&path)?;
        let before = read(&path)?;
        if before.as_deref().is_some_and(is_kubeconfig) {
            bail!("{} belongs to an embedded cluster: unset KUBECONFIG, or set it to another file", path.display());
        }
        let mut kubeconfig = parse(before.as_deref(), &path)?;
        let mut created = before.is_none();
        for (context, other) in edit::merged(&kubeconfig) {
            if !is_running(&other)? {
                created |= edit::remove(&mut kubeconfig, &context);
            }
        }
        let name = own["current-context"].as_str().unwrap_or_default();
        if let Err(list) = edit::add(&mut kubeconfig, own, file, keep_context, created) {
            let running = edit::merged(&kubeconfig).iter().any(|(context, _)| context == name);
            let why = if running { "of a running cluster" } else { "that kubewright has not written" };
            bail!("{} has an entry {name} in {list} {why}: choose another name with --context", path.display());
        }
        let after = text(&kubeconfig)?;
        write(&path, &after)?;
        Ok(Self { path, context: name.into(), own: file.into(), before, after, is_removed: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn context(&self) -> &str {
        &self.context
    }

    /// Returns whether the file had comments, which it doesn't have while the context is in it.
    pub(crate) fn hides_comments(&self) -> bool {
        let mut lines = self.before.iter().flat_map(|text| text.lines());
        lines.any(|line| line.trim_start().starts_with('#') || line.contains(" #"))
    }

    /// Removes the context, and restores the current context unless it was changed meanwhile.
    ///
    /// # Errors
    /// If the file can't be read, locked or written. The next cluster that is merged then removes the context.
    pub(crate) fn remove(mut self) -> Result<()> {
        self.try_remove()
    }

    fn try_remove(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_removed, true) {
            return Ok(());
        }
        let _lock = lock(&self.path)?;
        let Some(now) = read(&self.path)? else { return Ok(()) };
        let before = self.before.as_deref().filter(|before| now == self.after && !has_records(before));
        if let Some(before) = before {
            return write(&self.path, before);
        }
        let mut kubeconfig = parse(Some(&now), &self.path)?;
        let is_ours = |(context, own): &(String, PathBuf)| (context, own) == (&self.context, &self.own);
        if !edit::merged(&kubeconfig).iter().any(is_ours) {
            return Ok(());
        }
        if edit::remove(&mut kubeconfig, &self.context) {
            let removed = fs::remove_file(&self.path);
            return removed.with_context(|| format!("remove the kubeconfig {}", self.path.display()));
        }
        write(&self.path, &text(&kubeconfig)?)
    }
}

impl Drop for MergedContext {
    fn drop(&mut self) {
        // Best effort: the next cluster that is merged removes the context.
        let _ = self.try_remove();
    }
}

/// Returns whether a kubeconfig has contexts of other clusters, which must not be restored.
fn has_records(text: &str) -> bool {
    yaml::read(text).is_ok_and(|documents| documents.first().is_some_and(|first| !edit::merged(first).is_empty()))
}

/// Returns whether the cluster with this kubeconfig is running.
fn is_running(own: &Path) -> Result<bool> {
    Ok(matches!(holder(own)?, Holder::Process))
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read the kubeconfig {}", path.display())),
    }
}

fn parse(text: Option<&str>, path: &Path) -> Result<Value> {
    let documents = yaml::read(text.unwrap_or_default());
    let mut documents = documents.with_context(|| format!("read the kubeconfig {}", path.display()))?;
    match (documents.len(), documents.pop()) {
        (0, _) | (1, Some(Value::Null)) => Ok(json!({})),
        (1, Some(kubeconfig @ Value::Object(_))) => Ok(kubeconfig),
        _ => bail!("{} is not a kubeconfig: fix the file, or set KUBECONFIG to another one", path.display()),
    }
}

fn text(kubeconfig: &Value) -> Result<String> {
    yaml::without_blocks(kubeconfig).context("write the kubeconfig")
}

/// Replaces a file as a whole, also if `path` is a symbolic link to it. Only the owner can read it afterwards.
fn write(path: &Path, content: &str) -> Result<()> {
    let failed = || format!("write the kubeconfig {}", path.display());
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let parent = target.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".kubeconfig-").tempfile_in(parent).with_context(failed)?;
    file.write_all(content.as_bytes()).with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    file.persist(&target).map_err(|error| error.error).with_context(failed)?;
    Ok(())
}

/// Takes the lock of a kubeconfig, as kubectl does: by creating a file beside it.
fn lock(path: &Path) -> Result<LockedFile> {
    let mut name = path.file_name().unwrap_or(OsStr::new("config")).to_owned();
    name.push(".lock");
    let lock = path.with_file_name(name);
    let (attempts, pause) = LOCK_ATTEMPTS;
    for _ in 0..attempts {
        if let Holder::None = clear(&lock, LOCK_MARK)?
            && let Some(locked) = LockedFile::create(&lock, LOCK_MARK)?
        {
            return Ok(locked);
        }
        sleep(pause);
    }
    bail!(
        "{} is locked by another program: wait until it has finished, or remove {} if no program uses it",
        path.display(),
        lock.display()
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::kubeconfig::{ContextNames, KubeconfigFile, rename};

    const OF_USER: &str = "# mine\napiVersion: v1\nkind: Config\ncurrent-context: work\ncontexts:\n- name: work\n  \
        context: {cluster: work, user: me}\nclusters: []\nusers: []\n";

    fn own(name: &str) -> Value {
        let mut own = json!({
            "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "x", "user": {"token": "secret"}}],
            "contexts": [{"name": "x", "context": {}}],
        });
        rename(&mut own, ContextNames { context: name, namespace: "default" }, None);
        own
    }

    struct Home {
        folder: tempfile::TempDir,
        config: PathBuf,
    }

    impl Home {
        fn new(content: Option<&str>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let config = folder.path().join("config");
            if let Some(content) = content {
                fs::write(&config, content).unwrap();
            }
            Self { folder, config }
        }

        /// The kubeconfig of a running cluster.
        fn cluster(&self, name: &str) -> KubeconfigFile {
            KubeconfigFile::write(Some(&self.folder.path().join(name)), "kind: Config").unwrap()
        }

        fn add(&self, name: &str, cluster: &KubeconfigFile) -> Result<MergedContext> {
            MergedContext::add(self.config.clone(), &own(name), cluster.path(), false)
        }

        fn text(&self) -> String {
            fs::read_to_string(&self.config).unwrap()
        }

        fn current(&self) -> Option<String> {
            kube::config::Kubeconfig::from_yaml(&self.text()).unwrap().current_context
        }
    }

    #[test]
    fn the_file_is_restored_to_the_byte() {
        let home = Home::new(Some(OF_USER));
        let cluster = home.cluster("a.kubeconfig");
        let merged = home.add("a", &cluster).unwrap();
        assert!(merged.hides_comments());
        assert_eq!(home.current().as_deref(), Some("a"));
        assert_eq!(fs::metadata(&home.config).unwrap().permissions().mode() & 0o777, 0o600);
        merged.remove().unwrap();
        assert_eq!(home.text(), OF_USER);
        assert!(!home.folder.path().join("config.lock").exists());
    }

    #[test]
    fn changes_of_others_are_kept() {
        let home = Home::new(Some(OF_USER));
        let cluster = home.cluster("a.kubeconfig");
        let merged = home.add("a", &cluster).unwrap();
        fs::write(&home.config, home.text().replace("users:", "users:\n- name: other\n  user: {}")).unwrap();
        drop(merged);
        assert_eq!(home.current().as_deref(), Some("work"));
        assert!(home.text().contains("name: other") && !home.text().contains("secret"), "{}", home.text());
    }

    #[test]
    fn a_file_that_did_not_exist_is_removed() {
        let home = Home::new(None);
        let (first, second) = (home.cluster("1"), home.cluster("2"));
        let a = home.add("a", &first).unwrap();
        let b = home.add("b", &second).unwrap();
        a.remove().unwrap();
        assert_eq!(home.current().as_deref(), Some("b"));
        b.remove().unwrap();
        assert!(!home.config.exists());
    }

    #[test]
    fn the_next_cluster_removes_what_a_killed_one_left() {
        let home = Home::new(Some(OF_USER));
        let killed = home.cluster("killed");
        std::mem::forget(home.add("a", &killed).unwrap());
        drop(killed);
        let running = home.cluster("running");
        let b = home.add("b", &running).unwrap();
        assert!(!home.text().contains("name: a"), "{}", home.text());
        let error = home.add("b", &home.cluster("third")).unwrap_err().to_string();
        assert!(error.contains("of a running cluster: choose another name with --context"), "{error}");
        b.remove().unwrap();
        assert_eq!(home.current().as_deref(), Some("work"));
    }

    #[test]
    fn clusters_that_are_merged_at_the_same_time_lose_nothing() {
        let home = Home::new(Some(OF_USER));
        std::thread::scope(|threads| {
            for name in ["a", "b", "c", "d"] {
                let home = &home;
                threads.spawn(move || {
                    let cluster = home.cluster(name);
                    for _ in 0..5 {
                        home.add(name, &cluster).unwrap().remove().unwrap();
                    }
                });
            }
        });
        assert_eq!(home.current().as_deref(), Some("work"));
        assert_eq!(edit::merged(&parse(Some(&home.text()), &home.config).unwrap()), []);
    }

    #[test]
    fn a_symbolic_link_stays_one() {
        let home = Home::new(None);
        let target = home.folder.path().join("dotfiles");
        fs::write(&target, OF_USER).unwrap();
        symlink(&target, &home.config).unwrap();
        let cluster = home.cluster("a");
        let merged = home.add("a", &cluster).unwrap();
        assert!(fs::read_to_string(&target).unwrap().contains("current-context: a"));
        merged.remove().unwrap();
        assert!(fs::symlink_metadata(&home.config).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), OF_USER);
    }

    #[test]
    fn an_abandoned_lock_is_taken_over() {
        let home = Home::new(Some(OF_USER));
        fs::write(home.folder.path().join("config.lock"), format!("{LOCK_MARK}\n")).unwrap();
        home.add("a", &home.cluster("a")).unwrap().remove().unwrap();
        assert_eq!(home.text(), OF_USER);
    }

    #[test]
    fn files_that_are_not_kubeconfigs_are_not_changed() {
        for (content, says) in [("[1, 2]", "is not a kubeconfig"), ("a: [", "read the kubeconfig"), ("a", "is not a")] {
            let home = Home::new(Some(content));
            let error = home.add("a", &home.cluster("b")).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(home.text(), content);
        }
        let home = Home::new(None);
        let other = home.cluster("config");
        let error = home.add("a", &home.cluster("b")).unwrap_err().to_string();
        assert!(error.contains("belongs to an embedded cluster"), "{error}");
        assert!(other.path().exists());
        let home = Home::new(Some(OF_USER));
        let error = home.add("work", &home.cluster("b")).unwrap_err().to_string();
        assert!(error.contains("has an entry work in contexts that kubewright has not written"), "{error}");
    }

    #[test]
    fn the_file_is_the_one_that_kubectl_changes() {
        let home = Home::new(Some(OF_USER));
        let absent = home.folder.path().join("absent");
        let check = |files: &[&Path], expected: &Path| {
            let variable = std::env::join_paths(files).unwrap();
            assert_eq!(user_kubeconfig(Some(variable), None).unwrap(), expected);
        };
        check(&[&absent, &home.config], &home.config);
        check(&[Path::new("/nowhere"), &absent], &absent);
        let found = user_kubeconfig(Some(OsString::new()), Some("/home/me".into())).unwrap();
        assert_eq!(found, Path::new("/home/me/.kube/config"));
        assert!(user_kubeconfig(None, None).is_err());
    }
}
