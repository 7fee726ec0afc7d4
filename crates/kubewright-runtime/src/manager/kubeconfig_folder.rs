//! Clusters by the kubeconfigs in a folder.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use kube::config::Kubeconfig;
use tokio::{fs, time::sleep};
use tracing::error;

use super::{Clusters, ManagerError, RemoteCluster, Runnable};
use crate::args::{ConnectError, ManagerArgs};

/// The interval at which the folder is read. It isn't watched, for the reasons of certificate files.
const INTERVAL: Duration = Duration::from_secs(10);

impl Clusters {
    /// Returns a task for [`Manager::runnable`](super::Manager::runnable), which brings in a cluster for each
    /// kubeconfig in a folder, such as a mounted Secret, as long as there is one. The folder is read every ten seconds.
    /// The name of the cluster is that of the file without its extension; hidden files are ignored.
    ///
    /// A changed file replaces its cluster. One that can't be used is logged with its path, tried again, and leaves the
    /// clusters of all others unaffected.
    ///
    /// ```
    /// # use kubewright_runtime::manager::Manager;
    /// # fn example(manager: Manager) -> Manager {
    /// let clusters = manager.clusters();
    /// manager.runnable(clusters.kubeconfig_folder("/etc/clusters"))
    /// # }
    /// ```
    pub fn kubeconfig_folder(&self, folder: impl Into<PathBuf>) -> Runnable {
        let (clusters, folder) = (self.clone(), folder.into());
        // Each replica works on the clusters, or is about to.
        Runnable::new("kubeconfig-folder", async move |context| {
            let mut folder = Folder { clusters, folder, known: BTreeMap::new(), failure: None };
            while context.cancelled.run_until_cancelled(folder.look()).await.is_some() {
                context.cancelled.run_until_cancelled(sleep(INTERVAL)).await;
            }
            Ok(())
        })
        .needs_leader(false)
    }
}

struct Folder {
    clusters: Clusters,
    folder: PathBuf,
    /// The files by the name of the cluster.
    known: BTreeMap<String, File>,
    /// Why the folder couldn't be read last time.
    failure: Option<String>,
}

#[derive(Default)]
struct File {
    /// The content with which its cluster was brought in.
    used: Option<Vec<u8>>,
    /// Why it couldn't be used last time.
    failure: Option<String>,
}

impl Folder {
    async fn look(&mut self) {
        let found = match read(&self.folder).await {
            Ok(found) => found,
            Err(error) => {
                let error = error.to_string();
                if self.failure.as_ref() != Some(&error) {
                    error!(folder = %self.folder.display(), error, "the folder of kubeconfigs can't be read");
                }
                self.failure = Some(error);
                return;
            }
        };
        self.failure = None;
        for (name, mut file) in self.known.extract_if(.., |name, _| !found.contains_key(name)).collect::<Vec<_>>() {
            self.take_out(&name, &mut file).await;
        }
        for (name, (path, content)) in found {
            let mut file = self.known.remove(&name).unwrap_or_default();
            let failure = self.update(&mut file, &name, &path, content).await.err();
            if let Some(error) = failure.as_ref().filter(|_| failure != file.failure) {
                error!(file = %path.display(), error, "the kubeconfig can't be used; trying again");
            }
            file.failure = failure;
            self.known.insert(name, file);
        }
    }

    /// Brings in the cluster of a file, in place of that with its former content.
    async fn update(
        &self,
        file: &mut File,
        name: &str,
        path: &Path,
        content: io::Result<Vec<u8>>,
    ) -> Result<(), String> {
        let content = content.map_err(|error| error.to_string())?;
        if file.used.as_ref() == Some(&content) {
            return Ok(());
        }
        self.take_out(name, file).await;
        bring_in(&self.clusters, name, path).await?;
        file.used = Some(content);
        Ok(())
    }

    async fn take_out(&self, name: &str, file: &mut File) {
        if file.used.take().is_some() {
            self.clusters.remove(name).await;
        }
    }
}

async fn bring_in(clusters: &Clusters, name: &str, path: &Path) -> Result<(), String> {
    let from = path.display().to_string();
    let kubeconfig = Kubeconfig::read_from(path);
    let kubeconfig = kubeconfig.map_err(|error| ConnectError::Kubeconfig { from: from.clone(), error }.to_string())?;
    let client = ManagerArgs::client_of(kubeconfig, from).await.map_err(|error| error.to_string())?;
    clusters.add(name, RemoteCluster::new(client)).await.map_err(|error: ManagerError| error.to_string())
}

/// Returns the files of a folder, with what they contain, by their names without extension. Of several with the same
/// name the last one counts.
async fn read(folder: &Path) -> io::Result<BTreeMap<String, (PathBuf, io::Result<Vec<u8>>)>> {
    let (mut entries, mut paths) = (fs::read_dir(folder).await?, Vec::new());
    while let Some(entry) = entries.next_entry().await? {
        paths.push(entry.path());
    }
    paths.sort();
    let mut found = BTreeMap::new();
    for path in paths {
        let name = path.file_stem().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'));
        // Follows the links of a mounted Secret.
        let is_file = fs::metadata(&path).await.is_ok_and(|metadata| metadata.is_file());
        if let Some(name) = name.filter(|_| is_file) {
            let content = fs::read(&path).await;
            found.insert(name.to_owned(), (path, content));
        }
    }
    Ok(found)
}
