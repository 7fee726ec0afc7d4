//! One run of a container, from its preparation to its end.

use std::{
    collections::BTreeMap,
    io,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::Engine;
use futures::future::OptionFuture;
use k8s_openapi::api::core::v1::{Container, Pod};
use kubewright_apimachinery::watch;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    machine::{Event, StartFailure},
    probe::{ProbeResult, ProbeType},
    prober::Prober,
    spec,
    termination::TerminationMessage,
    volumes::{ContainerVolumes, fetch, view},
};
use crate::node::{
    NodeContext,
    dns::resolv_conf,
    environment::{Reference, expand, references, variables},
    exec::{self, RunningContainer, Tee},
    hosts,
    identity::{self, Accounts, Identity, VolumeOwner},
    image::ImageError,
    log::{Log, Stream},
    network::{HostPortContext, PodSandbox},
    privileges,
    process::{CommandLine, KILLED, Process},
    view::{Mount, View},
    volume::{self, ROOT},
};

/// The time for which output is still read after the last process of the group was killed. Output ends at once, unless
/// a process that has left the group keeps it open.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// An event in the run of a container.
#[derive(Debug)]
pub(crate) enum ContainerEvent {
    /// The process runs and has this ID.
    Started(usize, String, Arc<Process>, Arc<Prober>, Identity),
    /// The process could not be started.
    Refused(usize, StartFailure),
    /// The process has ended with this exit code, and a message.
    Ended(usize, i32, Option<String>),
    /// A probe has a result, for the run with this ID.
    Probed(usize, String, ProbeType, ProbeResult),
    /// An event to record about the pod.
    Pod(Event),
    /// The local storage was measured; the message about a limit that it exceeds.
    Measured(Option<String>),
}

/// A pod on the node.
pub(crate) struct PlacedPod {
    /// The pod.
    pub(crate) pod: Arc<Pod>,
    /// Its address.
    pub(crate) address: String,
    /// Its later states, for volumes that follow changes.
    pub(crate) changes: watch::Receiver<Arc<Pod>>,
    /// Its network; `None` for that of the host.
    pub(crate) sandbox: Option<Arc<PodSandbox>>,
}

/// Starts a container, and waits until it has ended. Dropping the future kills it.
pub(crate) async fn run_container(
    host: Arc<NodeContext>,
    placed: PlacedPod,
    container: Container,
    index: usize,
    run: i32,
    events: mpsc::UnboundedSender<ContainerEvent>,
) {
    let PlacedPod { pod, address, changes, sandbox } = placed;
    let tell = |event| {
        // If the pod is gone, there is no receiver any more.
        let _gone = events.send(event);
    };
    let Prepared { mut line, volumes, termination, identity } =
        match prepare(&host, &pod, &address, &container, run, (changes, sandbox)).await {
            Ok(prepared) => prepared,
            Err(why) => return tell(ContainerEvent::Refused(index, why)),
        };
    let tty = container.tty == Some(true);
    if tty {
        line.use_terminal();
    }
    let (process, streams) = match host.processes.spawn_with_streams(&line, container.stdin == Some(true), tty) {
        Ok((process, streams)) => (Arc::new(process), streams),
        Err(error) => return tell(ContainerEvent::Refused(index, StartFailure::Start(error.to_string()))),
    };
    // Other commands are executed in the container.
    line.container = match &line.view {
        Some(view) => Some(view.entered(process.id()).await),
        None => Some(process.id()),
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let uid = text(&pod.metadata.uid);
    let name = (text(&pod.metadata.namespace), text(&pod.metadata.name));
    let path = host.pod_directory(&uid).join(format!("{}-{}", container.name, host.random.suffix(5)));
    let log = host.logs.begin(&name, &uid, &container.name, path, host.clock.clone());
    if run == 0 {
        mounts_event(&container, &line).into_iter().for_each(|event| tell(ContainerEvent::Pod(event)));
    }
    let output = exec::output();
    let tee = |stream, reader| Tee { reader, stream, output: output.clone() };
    let (stdout, stderr) =
        (tee(Stream::Stdout, streams.stdout), streams.stderr.map(|reader| tee(Stream::Stderr, reader)));
    let running = RunningContainer {
        uid,
        processes: host.processes.clone(),
        line: line.clone(),
        process: process.id(),
        address: address.clone(),
        output: output.clone(),
        stdin: Mutex::new(streams.stdin),
        stdin_once: container.stdin_once == Some(true),
        ended: CancellationToken::new(),
    };
    let _running = host.containers.add([name.0, name.1, container.name.clone()], running);
    let has_pid_namespace = spec::has_pid_namespace(&pod, &container.name);
    let hook = container.lifecycle.as_ref().and_then(|hooks| hooks.post_start.clone());
    let prober = Arc::new(Prober { processes: host.processes.clone(), container, line, address });
    let started = {
        let (process, prober) = (process.clone(), prober.clone());
        let id = host.random.uuid().replace('-', "");
        || tell(ContainerEvent::Started(index, id, process, prober, identity))
    };
    let mut attended = std::pin::pin!(async {
        tokio::select! {
            biased;
            code = attend(&process, has_pid_namespace, &log, stdout, stderr) => code,
            never = volumes.follow(&host) => match never {},
        }
    });
    let greeted = async {
        match &hook {
            Some(hook) => prober.hook(hook).await,
            None => Ok(()),
        }
    };
    // A container counts as started once its `postStart` hook has completed.
    let code = tokio::select! {
        biased;
        greeting = greeted => {
            if let Err(why) = greeting {
                tell(ContainerEvent::Pod(hook_failed("PostStart", &why)));
                process.kill();
            }
            started();
            attended.await
        }
        code = &mut attended => {
            started();
            code
        }
    };
    log.end();
    let message = termination.read(code, &log).await;
    tell(ContainerEvent::Ended(index, code, message));
}

/// Returns the event of a failed hook.
pub(crate) fn hook_failed(which: &str, why: &str) -> Event {
    let reason = if which == "PreStop" { "FailedPreStopHook" } else { "FailedPostStartHook" };
    Event { warning: true, reason, message: format!("{which}Hook failed: {why}") }
}

/// Records the output until the process has ended, and returns the exit code.
async fn attend(process: &Process, has_pid_namespace: bool, log: &Log, stdout: Tee, stderr: Option<Tee>) -> i32 {
    let record = async {
        let stderr = OptionFuture::from(stderr.map(|stderr| log.record(Stream::Stderr, stderr)));
        let (out, err) = tokio::join!(log.record(Stream::Stdout, stdout), stderr);
        out.and(err.unwrap_or(Ok(())))
    };
    let mut record = std::pin::pin!(record);
    let mut recorded: Option<io::Result<()>> = None;
    let mut ended = std::pin::pin!(process.ended());
    let status = loop {
        tokio::select! {
            biased;
            result = &mut record, if recorded.is_none() => recorded = Some(result),
            status = &mut ended => break status,
        }
    };
    if recorded.is_none() {
        recorded = timeout(LAST_OUTPUT, record).await.ok();
    }
    if let Some(Err(error)) = recorded {
        tracing::warn!(%error, "failed to record the output of a container");
    }
    match status {
        Ok(status) => process.container_exit_code(status, has_pid_namespace),
        Err(error) => {
            tracing::debug!(%error, "failed to wait for the end of a container");
            KILLED
        }
    }
}

/// What a run of a container needs.
struct Prepared {
    /// The command to execute.
    line: CommandLine,
    /// The volumes, which follow changes while it runs.
    volumes: ContainerVolumes,
    termination: TerminationMessage,
    /// The user and groups of its processes.
    identity: Identity,
}

/// Prepares a run of a container.
async fn prepare(
    host: &NodeContext,
    pod: &Pod,
    address: &str,
    container: &Container,
    run: i32,
    (changes, sandbox): (watch::Receiver<Arc<Pod>>, Option<Arc<PodSandbox>>),
) -> Result<Prepared, StartFailure> {
    let network = match sandbox {
        Some(sandbox) => {
            let host_ports = HostPortContext { clock: &host.clock, events: &host.events, tasks: &host.tasks };
            Some(sandbox.namespace(pod, host_ports).await.map_err(StartFailure::Sandbox)?)
        }
        None => None,
    };
    let image = container.image.as_deref().unwrap_or_default();
    let program = host.images.find(image).map_err(|error| match error {
        ImageError::Invalid(_) => StartFailure::InvalidImage(error.to_string()),
        ImageError::Unknown { .. } => StartFailure::NoImage(error.to_string()),
    })?;
    identity::verify(pod, container).map_err(StartFailure::Config)?;
    let setpriv = host.setpriv.get_or_init(privileges::find).await.as_ref();
    let identity = setpriv.and_then(|_| Identity::of(pod, container, &Accounts::read()));
    let user = identity.as_ref().map(|identity| identity.user);
    let mut directory = working_directory(host, pod, container, run, identity.as_ref())
        .map_err(|error| StartFailure::Config(format!("failed to create the working directory: {error}")))?;
    let objects =
        fetch(host, pod, references(container)).await.map_err(|error| StartFailure::Config(error.to_string()))?;
    let secret = |reference: &Reference| matches!(reference, Reference::Secret(_));
    let found =
        objects.iter().map(|(reference, object)| (reference.clone(), data(object, secret(reference)))).collect();
    let place = place(host, pod, address);
    let root = volume::root(&host.pod_directory(pod.metadata.uid.as_deref().unwrap_or_default()), &container.name)
        .map_err(|error| StartFailure::Config(format!("failed to create the container's root: {error}")))?;
    let mut placed = pod.clone();
    let status = placed.status.get_or_insert_default();
    status.pod_ip = Some(address.into());
    status.host_ip = Some(host.address().to_string());
    let owner = setpriv.map(|_| VolumeOwner::of(pod)).unwrap_or_default();
    let volumes = ContainerVolumes::collect(host, placed.clone(), container.clone(), changes, owner).await;
    let volumes = volumes.map_err(StartFailure::Volume)?;
    let account = volumes.account_variables(host, &root).await.map_err(StartFailure::Config)?;
    let base = base(host, pod, &account, program.environment(&place), [&directory.home, &root]);
    let mut environment = variables(&placed, container, base, &found, host.capacity)
        .map_err(|error| StartFailure::Config(error.to_string()))?;
    let mut mounts = volumes.mount(host, &environment, &root)?;
    let pod_directory = host.pod_directory(pod.metadata.uid.as_deref().unwrap_or_default());
    let failed = |what: &str, error: io::Error| StartFailure::Config(format!("failed to write {what}: {error}"));
    let termination = TerminationMessage::create(&pod_directory, &root, container);
    let (termination, message) = termination.map_err(|error| failed("the file of the termination message", error))?;
    let source = host.hosts.add(&pod_directory, pod, address).map_err(|error| failed("the hosts file", error))?;
    let hosts = Mount { path: hosts::PLACE.into(), source, read_only: false };
    let resolv_conf =
        (host.has_dns && resolv_conf::has_own(pod)).then(|| resolv_conf(host, pod, &pod_directory)).transpose();
    let resolv_conf = resolv_conf.map_err(|error| failed("the configuration of DNS", error))?;
    for own in [hosts, message].into_iter().chain(resolv_conf) {
        // A mount of the container at this path hides it, even if it is the host's file itself, which needs no mount.
        let mut given = container.volume_mounts.iter().flatten().map(|mount| Path::new(&mount.mount_path));
        if given.all(|path| path != own.path) {
            mounts.push(own);
        }
    }
    let own = container.working_dir.as_deref().map(Path::new);
    let mounted = own.filter(|own| mounts.iter().any(|mount| own.starts_with(&mount.path))).map(PathBuf::from);
    let view = view(host, pod, container, mounts).await;
    let mut program = program.clone();
    if let Some(view) = &view {
        program = program.inside(|path| view.inside(path));
        replace_hidden_paths(view, &pod_directory, &mut environment);
        directory.work = mounted.unwrap_or_else(|| view.inside(&directory.work));
        if let Some(own) = own.filter(|own| own.is_absolute()) {
            let made = own_working_directory(view, own, identity.as_ref());
            if made.map_err(|error| failed("the working directory", error))? {
                own.clone_into(&mut directory.work);
            }
        }
    }
    program.extend_search_path(&mut environment);
    let expanded = |list: &Option<Vec<String>>| -> Vec<String> {
        list.iter().flatten().map(|word| expand(word, &environment)).collect()
    };
    let privileges = privileges::prefix(setpriv, container, identity.as_ref());
    let mount_paths: Vec<_> = container.volume_mounts.iter().flatten().map(|mount| &*mount.mount_path).collect();
    let argv = program.argv(&place, expanded(&container.command), expanded(&container.args), &mount_paths);
    let line =
        CommandLine { argv, privileges, user, environment, directory: directory.work, view, container: None, network };
    let identity = identity.unwrap_or_else(Identity::of_node);
    Ok(Prepared { line, volumes, termination, identity })
}

/// Replaces the paths of a pod's own files in variables by those in the container, where a volume is mounted at a directory above them.
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

/// Writes the file by which a pod finds the cluster's DNS.
fn resolv_conf(host: &NodeContext, pod: &Pod, pod_directory: &Path) -> io::Result<Mount> {
    let source = pod_directory.join("resolv.conf");
    std::fs::write(&source, resolv_conf::of_pod(pod, host.address(), resolv_conf::host()))?;
    Ok(Mount { path: resolv_conf::PLACE.into(), source, read_only: false })
}

/// Returns the names that an image's own arguments may refer to, with their values.
fn place(host: &NodeContext, pod: &Pod, address: &str) -> Vec<(String, String)> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    vec![
        ("POD_IP".into(), address.into()),
        ("HOST_IP".into(), host.address().to_string()),
        ("POD_NAME".into(), text(&pod.metadata.name)),
        ("POD_NAMESPACE".into(), text(&pod.metadata.namespace)),
    ]
}

/// Returns the variables that every container has. The variables of its image override them.
fn base(
    host: &NodeContext,
    pod: &Pod,
    account: &[(String, String)],
    image: Vec<(String, String)>,
    [home, root]: [&PathBuf; 2],
) -> Vec<(String, String)> {
    let home = home.to_string_lossy().into_owned();
    let mut variables = vec![
        ("HOME".to_owned(), home.clone()),
        ("TMPDIR".to_owned(), home),
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
    // These variables come later, since the certificate in the token volume belongs to this address of the server.
    variables.extend_from_slice(account);
    variables.extend(image);
    variables
}

/// The directories of a run.
struct Directory {
    /// The container's own directory, empty at the start of each run.
    home: PathBuf,
    /// The working directory.
    work: PathBuf,
}

/// Creates a new directory for a run, which belongs to `identity`. `workingDir` is used unchanged if it exists on the host, and is created in the
/// new directory otherwise.
fn working_directory(
    host: &NodeContext,
    pod: &Pod,
    container: &Container,
    run: i32,
    identity: Option<&Identity>,
) -> io::Result<Directory> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let pod_directory = host.pod_directory(uid);
    make(&pod_directory)?;
    let container_directory = pod_directory.join(&container.name);
    if run > 0 && container_directory.exists() {
        std::fs::remove_dir_all(&container_directory)?;
    }
    make(&container_directory)?;
    let home = container_directory;
    let work = match container.working_dir.as_deref().map(Path::new) {
        None => home.clone(),
        Some(path) if path.is_absolute() && path.is_dir() => path.into(),
        Some(path) => {
            let inside: PathBuf =
                path.components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect();
            let work = home.join(inside);
            std::fs::create_dir_all(&work)?;
            work
        }
    };
    if let Some(Identity { user, group, .. }) = identity {
        let inside = work.ancestors().take_while(|path| path.starts_with(&home)).map(Path::to_owned);
        for path in inside.chain([home.clone()]) {
            chown(path, Some(*user), Some(*group))?;
        }
    }
    Ok(Directory { home, work })
}

/// Creates the working directory in the layer of a container. Returns whether the container finds it at its path.
fn own_working_directory(view: &View, path: &Path, identity: Option<&Identity>) -> io::Result<bool> {
    let Some(made) = view.create_directory(path)? else { return Ok(false) };
    if let Some(Identity { user, group, .. }) = identity.filter(|_| !path.is_dir()) {
        chown(made, Some(*user), Some(*group))?;
    }
    Ok(true)
}

/// Creates a directory, but not its parents: once the node is gone, its directory must not be created again.
fn make(directory: &Path) -> io::Result<()> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Returns an event with the paths of a container's volumes, since they differ from the mount paths.
fn mounts_event(container: &Container, line: &CommandLine) -> Option<Event> {
    if line.view.is_some() {
        return None;
    }
    let (_, root) = line.environment.iter().find(|(name, _)| name == ROOT)?;
    let paths: Vec<_> = container.volume_mounts.iter().flatten().map(|mount| mount.mount_path.as_str()).collect();
    let message = format!(
        "Container {} has {} below {root}, which is its ${ROOT}: a process of this machine has no file system of its own",
        container.name,
        paths.join(", "),
    );
    (!paths.is_empty()).then_some(Event { warning: true, reason: "VolumesElsewhere", message })
}

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
