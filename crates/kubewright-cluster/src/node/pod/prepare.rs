//! Preparation of a run of a container: network, image, directories, volumes, environment, and the command that is
//! executed.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::Engine;
use k8s_openapi::api::core::v1::{Container, Pod};
use kubewright_apimachinery::watch;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    directory::Directory,
    machine::StartFailure,
    termination::TerminationMessage,
    view::{tools, view},
    volumes::{ContainerVolumes, fetch},
};
use crate::node::{
    NodeContext,
    control_group::{ControlGroup, ControlGroups},
    dns::resolv_conf,
    env_file,
    environment::{Reference, expand, references, variables},
    hosts,
    identity::{self, Accounts, Identity, VolumeOwner},
    image::{ImageError, Program},
    namespace::NetworkNamespace,
    network::{HostPortContext, PodSandbox},
    privileges,
    process::CommandLine,
    resource,
    view::{Mount, Propagation, SharedProcesses, View},
    volume::{self, ROOT},
};

/// The directory of temporary files in a container.
const TEMPORARY: &str = "/tmp";

/// A pod on the node.
#[derive(Clone)]
pub(crate) struct PlacedPod {
    /// The pod.
    pub(crate) pod: Arc<Pod>,
    /// Its address.
    pub(crate) address: String,
    /// Its later states, for volumes that follow changes.
    pub(crate) changes: watch::Receiver<Arc<Pod>>,
    /// Its network; `None` for that of the host.
    pub(crate) sandbox: Option<Arc<PodSandbox>>,
    /// Its processes, if its containers share them.
    pub(crate) processes: Arc<SharedProcesses>,
    /// Cancelled when the pod has to end.
    pub(crate) stopping: CancellationToken,
}

/// What a run of a container needs.
pub(super) struct Prepared {
    /// The command to execute.
    pub(super) line: CommandLine,
    /// The volumes, which follow changes while it runs.
    pub(super) volumes: ContainerVolumes,
    /// The file of the termination message.
    pub(super) termination: TerminationMessage,
    /// The user and groups of its processes.
    pub(super) identity: Identity,
}

/// Prepares a run of a container.
///
/// # Errors
/// Returns the first step that failed, which becomes the reason why the container waits.
pub(super) async fn prepare(
    host: &NodeContext,
    placed: PlacedPod,
    container: &Container,
    run: i32,
) -> Result<Prepared, StartFailure> {
    let PlacedPod { pod, address, changes, sandbox, processes, stopping: _ } = placed;
    let network = network(host, &pod, sandbox).await?;
    let mut program = program_of_image(host, container)?;
    identity::verify(&pod, container).map_err(StartFailure::Config)?;
    let setpriv = host.setpriv.get_or_init(privileges::find).await.as_ref();
    let identity = setpriv.and_then(|_| Identity::of(&pod, container, &Accounts::read()));
    let preparation = Preparation {
        host,
        directory: host.pod_directory(pod.metadata.uid.as_deref().unwrap_or_default()),
        pod: with_addresses(host, &pod, &address),
        address: &address,
        container,
    };
    let mut directory = Directory::create(&preparation.directory, container, run, identity.as_ref())
        .map_err(|error| failed("create the working directory", error))?;
    let root = volume::root(&preparation.directory, &container.name)
        .map_err(|error| failed("create the container's root", error))?;
    let owner = setpriv.map(|_| VolumeOwner::of(&pod)).unwrap_or_default();
    let volumes = ContainerVolumes::collect(host, preparation.pod.clone(), container.clone(), changes, owner).await;
    let volumes = volumes.map_err(StartFailure::Volume)?;
    let mut environment = preparation.environment(&volumes, &program, [&directory.home, &root]).await?;
    volumes.mount_devices(host).await?;
    let mut mounts = volumes.mount(host, &environment, &root)?;
    let (termination, own) = preparation.own_files(&root)?;
    mounts.extend(own);
    let working_dir = container.working_dir.as_deref().map(Path::new);
    let is_mounted = working_dir.is_some_and(|path| mounts.iter().any(|mount| path.starts_with(&mount.path)));
    let view = view(host, &pod, container, mounts, &processes).await?;
    if let Some(view) = &view {
        program = program.inside(|path| view.inside(path));
        replace_hidden_paths(view, &preparation.directory, &mut environment);
        directory
            .enter(view, working_dir, is_mounted, identity.as_ref())
            .map_err(|error| failed("create the working directory", error))?;
    }
    program.extend_search_path(&mut environment);
    Ok(Prepared {
        line: CommandLine {
            argv: preparation.argv(&program, &environment),
            privileges: privileges::prefix(setpriv, container, identity.as_ref()),
            user: identity.as_ref().map(|identity| identity.user),
            environment,
            directory: directory.work,
            view,
            container: None,
            network,
            control_group: control_group(host, &pod, container, run).await?,
        },
        volumes,
        termination,
        identity: identity.unwrap_or_else(Identity::of_node),
    })
}

/// Returns the network namespace of a pod; `None` for that of the host.
async fn network(
    host: &NodeContext,
    pod: &Pod,
    sandbox: Option<Arc<PodSandbox>>,
) -> Result<Option<Arc<NetworkNamespace>>, StartFailure> {
    let Some(sandbox) = sandbox else { return Ok(None) };
    let host_ports = HostPortContext { clock: &host.clock, events: &host.events, tasks: &host.tasks };
    sandbox.namespace(pod, host_ports).await.map(Some).map_err(StartFailure::Sandbox)
}

/// Creates the control group of a run of a container, if the containers are isolated and its memory is limited.
async fn control_group(
    host: &NodeContext,
    pod: &Pod,
    container: &Container,
    run: i32,
) -> Result<Option<Arc<ControlGroup>>, StartFailure> {
    let Some(limit) = resource::memory_limit_of(container).filter(|_| host.isolates_containers) else {
        return Ok(None);
    };
    let find = async || {
        let found = ControlGroups::find(&host.processes.id());
        found.inspect_err(|why| tracing::warn!(why, "limits of memory have no effect")).ok().map(Arc::new)
    };
    let Some(groups) = host.control_groups.get_or_init(find).await else { return Ok(None) };
    let name = format!("{}.{}.{run}", pod.metadata.uid.as_deref().unwrap_or_default(), container.name);
    let group = groups.create(&name, limit).map_err(|error| failed("create the control group", error))?;
    Ok(Some(Arc::new(group)))
}

/// Returns the program that the node executes for the container's image.
fn program_of_image(host: &NodeContext, container: &Container) -> Result<Program, StartFailure> {
    let program = host.images.find(container.image.as_deref().unwrap_or_default());
    program.cloned().map_err(|error| match error {
        ImageError::Invalid(_) => StartFailure::InvalidImage(error.to_string()),
        ImageError::Unknown { .. } => StartFailure::NoImage(error.to_string()),
    })
}

/// Returns the pod with the addresses that variables and volumes refer to.
fn with_addresses(host: &NodeContext, pod: &Pod, address: &str) -> Pod {
    let mut placed = pod.clone();
    let status = placed.status.get_or_insert_default();
    status.pod_ip = Some(address.into());
    status.host_ip = Some(host.address().to_string());
    placed
}

fn failed(what: &str, error: io::Error) -> StartFailure {
    StartFailure::Config(format!("failed to {what}: {error}"))
}

/// What the steps of a preparation read.
struct Preparation<'a> {
    host: &'a NodeContext,
    /// The pod, with its addresses.
    pod: Pod,
    address: &'a str,
    container: &'a Container,
    /// The pod's own directory on the node.
    directory: PathBuf,
}

impl Preparation<'_> {
    /// Returns the variables of the container. `home` is its own directory, `root` the one below which its volumes are.
    async fn environment(
        &self,
        volumes: &ContainerVolumes,
        program: &Program,
        [home, root]: [&Path; 2],
    ) -> Result<Vec<(String, String)>, StartFailure> {
        let objects = fetch(self.host, &self.pod, references(self.container)).await;
        let objects = objects.map_err(|error| StartFailure::Config(error.to_string()))?;
        let secret = |reference: &Reference| matches!(reference, Reference::Secret(_));
        let found =
            objects.iter().map(|(reference, object)| (reference.clone(), data(object, secret(reference)))).collect();
        let account = volumes.account_variables(self.host, root).await.map_err(StartFailure::Config)?;
        let mut base = self.base([home, root]);
        let temporary = self.temporary_directory([home, root], tools(self.host).await.is_some());
        base.extend(temporary.map(|path| ("TMPDIR".to_owned(), path.to_string_lossy().into_owned())));
        // These variables come later, since the certificate in the token volume belongs to this address of the server.
        base.extend(account);
        base.extend(program.environment(&self.substitutions()));
        let files = env_file::read(self.container, |name| self.directory_of(name));
        variables(&self.pod, self.container, base, &found, &files, self.host.capacity)
            .map_err(|error| StartFailure::Config(error.to_string()))
    }

    /// Returns the directory of an `emptyDir` of the pod.
    fn directory_of(&self, name: &str) -> Option<PathBuf> {
        let volume = self.pod.spec.as_ref()?.volumes.iter().flatten().find(|volume| volume.name == name)?;
        let in_memory = volume.empty_dir.as_ref()?.medium.as_deref() == Some("Memory");
        let memory = self.host.memory_directory(self.pod.metadata.uid.as_deref().unwrap_or_default());
        Some(volume::directory(&self.directory, memory.as_deref(), name, in_memory))
    }

    /// Returns the variables that every container has. The variables of its image override them.
    fn base(&self, [home, root]: [&Path; 2]) -> Vec<(String, String)> {
        let (host, pod) = (self.host, &self.pod);
        let mut variables = vec![
            ("HOME".to_owned(), home.to_string_lossy().into_owned()),
            (ROOT.to_owned(), root.to_string_lossy().into_owned()),
            ("HOSTNAME".to_owned(), hosts::host_name(pod).to_owned()),
        ];
        if let Some(server) = *host.server.borrow() {
            variables.push(("KUBERNETES_SERVICE_HOST".into(), server.ip().to_string()));
            variables.push(("KUBERNETES_SERVICE_PORT".into(), server.port().to_string()));
            variables.push(("KUBERNETES_SERVICE_PORT_HTTPS".into(), server.port().to_string()));
        }
        if pod.spec.as_ref().is_none_or(|spec| spec.enable_service_links != Some(false)) {
            variables.extend(host.hosts.service_variables(pod.metadata.namespace.as_deref().unwrap_or_default()));
        }
        variables
    }

    /// Returns the directory of temporary files if it isn't [`TEMPORARY`], as it is in Kubernetes. There containers
    /// would share that of the host, unless they are isolated; but one with a volume there has to find it, also if
    /// mount paths are below the root only.
    fn temporary_directory(&self, [home, root]: [&Path; 2], has_mount_paths: bool) -> Option<PathBuf> {
        let mut mounts = self.container.volume_mounts.iter().flatten();
        let has_volume = mounts.any(|mount| Path::new(&mount.mount_path).starts_with(TEMPORARY));
        if has_mount_paths {
            return (!has_volume && !self.host.isolates_containers).then(|| home.to_owned());
        }
        Some(if has_volume { root.join(volume::inside(TEMPORARY)) } else { home.to_owned() })
    }

    /// Returns the values of the names that an image's own arguments and variables may refer to.
    fn substitutions(&self) -> Vec<(String, String)> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        vec![
            ("POD_IP".into(), self.address.into()),
            ("HOST_IP".into(), self.host.address().to_string()),
            ("POD_NAME".into(), text(&self.pod.metadata.name)),
            ("POD_NAMESPACE".into(), text(&self.pod.metadata.namespace)),
        ]
    }

    /// Creates the files that the node gives to each container. Returns that of the termination message, and the mounts
    /// of all.
    fn own_files(&self, root: &Path) -> Result<(TerminationMessage, Vec<Mount>), StartFailure> {
        let Self { host, pod, address, container, directory } = self;
        let (termination, message) = TerminationMessage::create(directory, root, container)
            .map_err(|error| failed("write the file of the termination message", error))?;
        let source = host.hosts.add(directory, pod, address).map_err(|error| failed("write the hosts file", error))?;
        let mut files = vec![
            Mount { path: hosts::PLACE.into(), source, read_only: false, propagation: Propagation::None },
            message,
        ];
        if host.has_dns && resolv_conf::has_own(pod) {
            let source = directory.join("resolv.conf");
            std::fs::write(&source, resolv_conf::of_pod(pod, host.address(), resolv_conf::host()))
                .map_err(|error| failed("write the configuration of DNS", error))?;
            files.push(Mount {
                path: resolv_conf::PLACE.into(),
                source,
                read_only: false,
                propagation: Propagation::None,
            });
        }
        // A mount of the container at this path hides it, even if it is the host's file itself, which needs no mount.
        files.retain(|file| {
            let mut given = container.volume_mounts.iter().flatten();
            given.all(|mount| Path::new(&mount.mount_path) != file.path)
        });
        Ok((termination, files))
    }

    /// Returns the program to execute, with its arguments.
    fn argv(&self, program: &Program, environment: &[(String, String)]) -> Vec<String> {
        let expanded = |list: &Option<Vec<String>>| -> Vec<String> {
            list.iter().flatten().map(|word| expand(word, environment)).collect()
        };
        let Container { command, args, volume_mounts, .. } = self.container;
        let paths: Vec<_> = volume_mounts.iter().flatten().map(|mount| &*mount.mount_path).collect();
        program.argv(&self.substitutions(), expanded(command), expanded(args), &paths)
    }
}

/// Replaces the paths of a pod's own files in variables by those in the container, where a volume is mounted at a
/// directory above them.
fn replace_hidden_paths(view: &View, pod_directory: &Path, environment: &mut [(String, String)]) {
    let seen = view.inside(pod_directory);
    if seen == pod_directory {
        return;
    }
    for (_, value) in environment {
        if let Ok(rest) = Path::new(value.as_str()).strip_prefix(pod_directory) {
            *value = seen.join(rest).to_string_lossy().into_owned();
        }
    }
}

/// Returns the data of a ConfigMap or a Secret as text.
fn data(object: &Value, secret: bool) -> BTreeMap<String, String> {
    let fields = object["data"].as_object().into_iter().flatten();
    let text = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        if !secret {
            return text.to_owned();
        }
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    fields.map(|(key, value)| (key.clone(), text(value))).collect()
}
