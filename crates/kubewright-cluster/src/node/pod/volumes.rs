//! The volumes of a running container: what their files are made of, where the container finds them, and their changes
//! while it runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Volume, VolumeMount};
use kubewright_apimachinery::watch;
use serde_json::Value;
use tokio::{task::spawn_blocking, time::sleep};

use super::{machine::StartFailure, view::tools};
use crate::{
    node::{
        NodeContext,
        environment::{Reference, expand_all},
        identity::VolumeOwner,
        tokens::{self, PLACE},
        view::{Mount, Propagation},
        volume::{self, Content, Sources, VolumePlace},
    },
    object_client::ObjectPath,
};

/// The delay before a failed refresh is repeated.
const RETRY: Duration = Duration::from_secs(10);
/// The number of lookups of the ConfigMap with the server's certificate, and the delay between them. A controller
/// writes it shortly after the server starts to listen.
const PATIENCE: (usize, Duration) = (80, Duration::from_millis(25));
/// The ConfigMap with the server's certificate.
const CERTIFICATE: &str = "kube-root-ca.crt";

/// The volumes of a container.
pub(crate) struct ContainerVolumes {
    pod: Pod,
    container: Container,
    sources: Sources,
    /// The time at which the next token is replaced.
    renew_at: Option<Timestamp>,
    /// The current state of the pod. It is sent again when an object of a volume has changed.
    changes: watch::Receiver<Arc<Pod>>,
    owner: VolumeOwner,
}

impl ContainerVolumes {
    /// Collects what the volumes are made of. `pod` has its addresses. Their files will belong to `owner`.
    ///
    /// # Errors
    /// If the API server can't be read, or refuses a token.
    pub(crate) async fn collect(
        host: &NodeContext,
        pod: Pod,
        container: Container,
        changes: watch::Receiver<Arc<Pod>>,
        owner: VolumeOwner,
    ) -> Result<Self, String> {
        let mut volumes = Self { pod, container, sources: Sources::default(), renew_at: None, changes, owner };
        if volumes.has_token() {
            let (_, authority) =
                host.endpoints.any().await.map_err(|error| format!("failed to listen for pods: {error}"))?;
            volumes.await_certificate(host, &authority).await?;
        }
        volumes.read(host).await?;
        Ok(volumes)
    }

    fn has_token(&self) -> bool {
        !volume::tokens(&self.pod, &self.container).is_empty()
    }

    /// Waits until the ConfigMap with the server's certificate has it, if a volume shows it.
    async fn await_certificate(&self, host: &NodeContext, authority: &str) -> Result<(), String> {
        let reference = Reference::ConfigMap(CERTIFICATE.into());
        let wanted = BTreeSet::from([reference.clone()]);
        if !volume::references(&self.pod, &self.container).contains(&reference) {
            return Ok(());
        }
        let (tries, pause) = PATIENCE;
        for _ in 0..tries {
            let found = fetch(host, &self.pod, wanted.clone()).await.map_err(|error| error.to_string())?;
            let text = found.get(&reference).and_then(|map| map["data"]["ca.crt"].as_str()).unwrap_or_default();
            if text.contains(authority.trim()) {
                break;
            }
            sleep(pause).await;
        }
        Ok(())
    }

    /// Reads the objects and tokens of the volumes. Immutable objects are read once.
    async fn read(&mut self, host: &NodeContext) -> Result<(), String> {
        let mut wanted = volume::references(&self.pod, &self.container);
        let mut objects = std::mem::take(&mut self.sources.objects);
        objects.retain(|_, object| object["immutable"] == true);
        wanted.retain(|reference| !objects.contains_key(reference));
        objects.extend(fetch(host, &self.pod, wanted).await.map_err(|error| error.to_string())?);
        self.sources.objects = objects;
        self.renew_at = None;
        for request in volume::tokens(&self.pod, &self.container) {
            let token = host.tokens.get(&host.client, &host.clock, &self.pod, &request).await?;
            self.renew_at = Some(self.renew_at.map_or(token.renew_at, |at| at.min(token.renew_at)));
            self.sources.tokens.insert(request, token.text);
        }
        Ok(())
    }

    /// Returns the variables of clients of the API server if the container has a token at the usual path: the server's
    /// address, and a kubeconfig if the container sees its volumes only elsewhere.
    ///
    /// # Errors
    /// If the kubeconfig can't be written.
    pub(crate) async fn account_variables(
        &self,
        host: &NodeContext,
        root: &Path,
    ) -> Result<Vec<(String, String)>, String> {
        let mounts = self.container.volume_mounts.iter().flatten();
        if !self.has_token() || !mounts.clone().any(|mount| mount.mount_path == PLACE) {
            return Ok(Vec::new());
        }
        let (server, _) = host.endpoints.any().await.map_err(|error| format!("failed to listen for pods: {error}"))?;
        let (ip, port) = (server.ip().to_string(), server.port().to_string());
        let mut variables = vec![
            ("KUBERNETES_SERVICE_HOST", ip),
            ("KUBERNETES_SERVICE_PORT", port.clone()),
            ("KUBERNETES_SERVICE_PORT_HTTPS", port),
        ];
        if tools(host).await.is_none() {
            variables.push(("KUBECONFIG", self.write_kubeconfig(server, root)?));
        }
        Ok(variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Writes a kubeconfig with the token below a root directory. Returns its path.
    fn write_kubeconfig(&self, server: SocketAddr, root: &Path) -> Result<String, String> {
        let place = root.join(&PLACE[1..]);
        let account = self.pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or_default();
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let path = root.join("kubeconfig");
        std::fs::write(&path, tokens::kubeconfig(server, &place, namespace, account))
            .map_err(|error| format!("failed to write the kubeconfig: {error}"))?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn content(&self, host: &NodeContext, found: &Volume) -> Result<Content, String> {
        volume::content(&self.pod, &self.container, found, &self.sources, host.capacity, self.owner)
    }

    fn place<'a>(
        &'a self,
        host: &'a NodeContext,
        pod_directory: &'a Path,
        memory: Option<&'a Path>,
    ) -> VolumePlace<'a> {
        let security = self.pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        let policy = security.and_then(|security| security.fs_group_change_policy.as_deref());
        let only_on_mismatch = policy == Some("OnRootMismatch");
        // Only a node that changes the mounts of the host anyway adds some that outlive a cluster that is killed.
        let mounts = host.isolates_containers;
        let devices = host.devices.as_deref().map(|devices| (devices, uid(&self.pod)));
        VolumePlace { pod_directory, memory, mounts, devices, group: self.owner.group, only_on_mismatch }
    }

    /// Formats, checks and mounts the block devices among the volumes, which may take long.
    ///
    /// # Errors
    /// If that fails for one.
    pub(crate) async fn mount_devices(&self, host: &NodeContext) -> Result<(), StartFailure> {
        let Some(devices) = &host.devices else { return Ok(()) };
        let claimed = volume::mounted(&self.pod, &self.container)
            .filter(|one| one.persistent_volume_claim.is_some() || one.ephemeral.is_some());
        for found in claimed {
            let Ok(Content::Device(device, _)) = self.content(host, found) else { continue };
            let (devices, uid) = (devices.clone(), uid(&self.pod).to_owned());
            let mounted = spawn_blocking(move || devices.mount(&uid, &device).map_err(|error| error.to_string()));
            mounted.await.map_err(|error| error.to_string()).flatten().map_err(|why| set_up_failed(found, &why))?;
        }
        Ok(())
    }

    /// Writes the volumes, links them below the container's root directory, and returns where they are mounted.
    ///
    /// # Errors
    /// If a volume isn't available, or a part of it can't be shown.
    pub(crate) fn mount(
        &self,
        host: &NodeContext,
        environment: &[(String, String)],
        root: &Path,
    ) -> Result<Vec<Mount>, StartFailure> {
        let pod_directory = pod_directory(host, &self.pod);
        let memory = host.memory_directory(uid(&self.pod));
        let mut mounts = Vec::new();
        for found in volume::mounted(&self.pod, &self.container) {
            let failed = |why: String| set_up_failed(found, &why);
            let content = self.content(host, found).map_err(failed)?;
            volume::check_mode(&self.container, found, &content).map_err(failed)?;
            let made = {
                let _alone = host.volume_writes.lock();
                let place = self.place(host, &pod_directory, memory.as_deref());
                volume::make(&place, &found.name, &content).map_err(|error| failed(error.to_string()))?
            };
            let devices = self.container.volume_devices.iter().flatten();
            for device in devices.filter(|device| device.name == found.name && Path::new(&device.device_path) != made) {
                let path = PathBuf::from(&device.device_path);
                volume::link(root, &volume::inside(&device.device_path), &made)
                    .map_err(|error| failed(error.to_string()))?;
                let (source, propagation) = (made.clone(), Propagation::named(None));
                mounts.push(Mount { path, source, read_only: false, propagation });
            }
            let own = self.container.volume_mounts.iter().flatten().enumerate();
            for (number, mount) in own.filter(|(_, mount)| mount.name == found.name) {
                let part = sub_path(mount, environment).map_err(StartFailure::Config)?;
                let copy = pod_directory.join(format!(".part-{}-{number}", self.container.name));
                let source = volume::part_of(&made, &content, part.as_deref(), &copy).map_err(|error| {
                    // As in Kubernetes, the user doesn't learn what is on the host.
                    tracing::warn!(%error, "a part of a volume can't be mounted");
                    let (volume, container) = (&mount.name, &self.container.name);
                    let why =
                        format!("failed to prepare subPath for volumeMount {volume:?} of container {container:?}");
                    StartFailure::Config(why)
                })?;
                if let Some(place) = volume::place(mount, &content) {
                    volume::link(root, &place, &source).map_err(|error| failed(error.to_string()))?;
                }
                let path = PathBuf::from(&mount.mount_path);
                let propagation = Propagation::named(mount.mount_propagation.as_deref());
                mounts.push(Mount { path, source, read_only: mount.read_only == Some(true), propagation });
            }
        }
        Ok(mounts)
    }

    /// Replaces the files of volumes when what they are made of changes, for as long as it is polled.
    pub(crate) async fn follow(mut self, host: &NodeContext) -> Infallible {
        let mut retry = None;
        loop {
            let left = self.renew_at.map(|at| at.duration_since(host.clock.now()));
            let left = left.map(|left| Duration::try_from(left).unwrap_or_default());
            let timer = async {
                match left.into_iter().chain(retry).min() {
                    Some(delay) => sleep(delay.max(Duration::from_secs(1))).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = self.changes.changed() => if changed.is_err() {
                    return pending().await;
                },
                () = timer => {}
            }
            let current = self.changes.borrow_and_update().clone();
            self.pod.metadata.labels.clone_from(&current.metadata.labels);
            self.pod.metadata.annotations.clone_from(&current.metadata.annotations);
            retry = self.refresh(host).await.err().map(|why| {
                tracing::warn!(why, pod = ?self.pod.metadata.name, "failed to refresh the volumes of a pod");
                RETRY
            });
        }
    }

    async fn refresh(&mut self, host: &NodeContext) -> Result<(), String> {
        self.read(host).await?;
        let pod_directory = pod_directory(host, &self.pod);
        for found in volume::mounted(&self.pod, &self.container) {
            let content = self.content(host, found)?;
            if matches!(content, Content::Files(_)) {
                let _alone = host.volume_writes.lock();
                let place = self.place(host, &pod_directory, None);
                volume::make(&place, &found.name, &content).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }
}

/// Returns the failure of a volume, in the kubelet's words.
fn set_up_failed(volume: &Volume, why: &str) -> StartFailure {
    StartFailure::Volume(format!("MountVolume.SetUp failed for volume {:?} : {why}", volume.name))
}

/// Returns the part of a volume that a mount shows.
///
/// # Errors
/// If the part isn't below the volume, or a variable in it has no value. The messages are those of the kubelet.
fn sub_path(mount: &VolumeMount, environment: &[(String, String)]) -> Result<Option<String>, String> {
    let part = match mount.sub_path_expr.as_deref().filter(|expression| !expression.is_empty()) {
        Some(expression) => Some(expand_all(expression, environment)?),
        None => mount.sub_path.clone(),
    };
    let part = part.filter(|part| !part.is_empty());
    if let Some(part) = &part {
        if part.starts_with('/') {
            return Err(format!("error SubPath `{part}` must not be an absolute path"));
        }
        if part.split('/').any(|step| step == "..") {
            return Err(format!("unable to provision SubPath `{part}`: must not contain '..'"));
        }
    }
    Ok(part)
}

fn pod_directory(host: &NodeContext, pod: &Pod) -> PathBuf {
    host.pod_directory(uid(pod))
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Reads ConfigMaps and Secrets. Missing ones are omitted.
pub(super) async fn fetch(
    host: &NodeContext,
    pod: &Pod,
    wanted: BTreeSet<Reference>,
) -> Result<BTreeMap<Reference, Value>, kube::Error> {
    let mut found = BTreeMap::new();
    for reference in wanted {
        let (plural, name) = match &reference {
            Reference::ConfigMap(name) => ("configmaps", name),
            Reference::Secret(name) => ("secrets", name),
            Reference::Claim(name) => {
                if let Some(volume) = fetch_volume(host, pod, name).await? {
                    found.insert(reference, volume);
                }
                continue;
            }
        };
        let address = ObjectPath::core(plural, pod.metadata.namespace.as_deref(), name);
        if let Some(object) = host.client.get(&address).await? {
            found.insert(reference, object);
        }
    }
    Ok(found)
}

/// Reads the persistent volume of a claim; `None` if the claim isn't bound.
async fn fetch_volume(host: &NodeContext, pod: &Pod, claim: &str) -> Result<Option<Value>, kube::Error> {
    let address = ObjectPath::core("persistentvolumeclaims", pod.metadata.namespace.as_deref(), claim);
    let Some(claim) = host.client.get(&address).await?.filter(|claim| claim["status"]["phase"] == "Bound") else {
        return Ok(None);
    };
    let name = claim["spec"]["volumeName"].as_str().unwrap_or_default();
    host.client.get(&ObjectPath::core("persistentvolumes", None, name)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_below_their_volume() {
        let environment = [("A".to_owned(), "a".to_owned()), ("EMPTY".to_owned(), String::new())];
        let check = |plain: &str, expression: Option<&str>, expect: Result<Option<&str>, &str>| {
            let mount = VolumeMount {
                sub_path: Some(plain.into()),
                sub_path_expr: expression.map(String::from),
                ..VolumeMount::default()
            };
            let found = sub_path(&mount, &environment);
            assert_eq!(found.as_ref().map(Option::as_deref).map_err(String::as_str), expect, "{plain} {expression:?}");
        };
        check("", None, Ok(None));
        check("a..b/c", None, Ok(Some("a..b/c")));
        check("", Some("$(A)/b"), Ok(Some("a/b")));
        check("", Some("$(EMPTY)/b"), Err("missing value for EMPTY"));
        check("/a", None, Err("error SubPath `/a` must not be an absolute path"));
        check("", Some("$(A)/../.."), Err("unable to provision SubPath `a/../..`: must not contain '..'"));
    }
}
