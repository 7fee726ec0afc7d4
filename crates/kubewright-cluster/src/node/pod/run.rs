//! One run of a container, from its preparation to its end.

use std::{convert::Infallible, future::pending, io, sync::Arc, time::Duration};

use futures::future::OptionFuture;
use k8s_openapi::{
    api::core::v1::{Container, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kubewright_apimachinery::watch;
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    container::RunEnd,
    machine::{Event, StartFailure},
    prepare::{PlacedPod, Prepared, prepare},
    probe::{ProbeResult, ProbeType},
    prober::Prober,
    spec,
};
use crate::node::{
    NodeContext,
    control_group::ControlGroup,
    exec::{self, RunningContainer, Tee},
    identity::Identity,
    log::{Log, Stream},
    process::{CommandLine, KILLED, Process},
    process_streams::Streams,
    resource,
    view::TRIALS,
    volume::ROOT,
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
    /// The process has ended.
    Ended(usize, RunEnd),
    /// A probe has a result, for the run with this ID.
    Probed(usize, String, ProbeType, ProbeResult),
    /// An event to record about the pod.
    Pod(Event),
    /// The local storage was measured; the message about a limit that it exceeds.
    Measured(Option<String>),
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
    let tell = |event| {
        // If the pod is gone, there is no receiver any more.
        let _gone = events.send(event);
    };
    let (pod, address, stopping) = (placed.pod.clone(), placed.address.clone(), placed.stopping.clone());
    let changes = placed.changes.clone();
    let (prepared, process, streams) = match start(&host, &placed, &container, run).await {
        Ok(started) => started,
        Err(why) => return tell(ContainerEvent::Refused(index, why)),
    };
    let Prepared { line, volumes, termination, identity } = prepared;
    let process = Arc::new(process);
    if run == 0 {
        mounts_event(&container, &line).into_iter().for_each(|event| tell(ContainerEvent::Pod(event)));
    }
    let names = Names::of(&pod, &container);
    let log = names.begin_log(&host);
    let output = exec::output();
    let tee = |stream, reader| Tee { reader, stream, output: output.clone() };
    let (stdout, stderr) =
        (tee(Stream::Stdout, streams.stdout), streams.stderr.map(|reader| tee(Stream::Stderr, reader)));
    let running = RunningContainer {
        uid: names.uid,
        processes: host.processes.clone(),
        line: line.clone(),
        process: process.id(),
        commands: Mutex::default(),
        address: address.clone(),
        output: output.clone(),
        stdin: Mutex::new(streams.stdin),
        stdin_once: container.stdin_once == Some(true),
        tasks: host.tasks.clone(),
        ended: CancellationToken::new(),
    };
    let _running = host.containers.add([names.namespace, names.pod, names.container], running);
    let group = line.control_group.clone();
    let has_pid_namespace = spec::has_pid_namespace(&pod, &container.name);
    let hook = container.lifecycle.as_ref().and_then(|hooks| hooks.post_start.clone());
    let prober = Arc::new(Prober { processes: host.processes.clone(), container, line, address });
    let id = host.random.uuid().replace('-', "");
    let started = || tell(ContainerEvent::Started(index, id, process.clone(), prober.clone(), identity));
    let ended = async {
        tokio::select! {
            biased;
            code = record_until_end(&process, has_pid_namespace, &log, stdout, stderr) => code,
            never = volumes.follow(&host) => match never {},
            never = follow_limit(group.as_deref(), changes, &prober.container) => match never {},
        }
    };
    let post_start = async {
        let Some(hook) = &hook else { return };
        // A pod that has to end doesn't wait for the hook.
        let Some(result) = stopping.run_until_cancelled(prober.hook(hook)).await else { return };
        if let Err(why) = result {
            tell(ContainerEvent::Pod(hook_failed(&prober.container.name, "PostStart", &why)));
            process.kill();
        }
    };
    let code = await_end(post_start, started, ended).await;
    log.end();
    let message = termination.read(code, &log).await;
    let is_out_of_memory = group.is_some_and(|group| group.has_run_out());
    tell(ContainerEvent::Ended(index, RunEnd { code, is_out_of_memory, message }));
}

/// Prepares a run and starts its process. It is tried again if the file systems can't be mounted, since a mount of the
/// host may have ended meanwhile.
async fn start(
    host: &NodeContext,
    placed: &PlacedPod,
    container: &Container,
    run: i32,
) -> Result<(Prepared, Process, Streams), StartFailure> {
    let (stdin, tty) = (container.stdin == Some(true), container.tty == Some(true));
    let mut failure = String::new();
    for _ in 0..TRIALS {
        let mut prepared = prepare(host, placed.clone(), container, run).await?;
        let line = &mut prepared.line;
        if tty {
            line.use_terminal();
        }
        let spawned = host.processes.spawn_with_streams(line, stdin, tty);
        let (process, streams) = spawned.map_err(|error| StartFailure::Start(error.to_string()))?;
        // Other commands are executed in the container.
        line.container = Some(match &line.view {
            Some(view) => view.entered(process.id()).await,
            None => process.id(),
        });
        match line.view.as_ref().and_then(|view| view.failure()) {
            Some(why) => failure = why,
            None => return Ok((prepared, process, streams)),
        }
    }
    Err(StartFailure::Start(format!("failed to mount the file systems of the container: {failure}")))
}

/// Waits until a container has ended, and returns its exit code. It counts as started once its `postStart` hook has
/// completed, or it has ended.
async fn await_end(
    post_start: impl Future<Output = ()>,
    started: impl FnOnce(),
    ended: impl Future<Output = i32>,
) -> i32 {
    let mut ended = std::pin::pin!(ended);
    let early = tokio::select! {
        biased;
        () = post_start => None,
        code = &mut ended => Some(code),
    };
    started();
    match early {
        Some(code) => code,
        None => ended.await,
    }
}

/// Sets the limit of a container's memory when it changes in the pod, for as long as it is polled.
async fn follow_limit(
    group: Option<&ControlGroup>,
    mut changes: watch::Receiver<Arc<Pod>>,
    container: &Container,
) -> Infallible {
    let Some(group) = group else { return pending().await };
    let mut present = resource::memory_limit_of(container);
    while changes.changed().await.is_ok() {
        let pod = changes.borrow_and_update().clone();
        let limit = spec::find(&pod, &container.name).and_then(|container| resource::memory_limit_of(&container));
        let Some(wanted) = limit.filter(|_| limit != present) else { continue };
        match group.set_limit(wanted) {
            Ok(()) => present = limit,
            Err(error) => tracing::warn!(%error, container = container.name, "failed to change a limit of memory"),
        }
    }
    pending().await
}

/// The names of a container.
struct Names {
    namespace: String,
    pod: String,
    uid: String,
    container: String,
}

impl Names {
    fn of(pod: &Pod, container: &Container) -> Self {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let ObjectMeta { namespace, name, uid, .. } = &pod.metadata;
        Self { namespace: text(namespace), pod: text(name), uid: text(uid), container: container.name.clone() }
    }

    /// Begins the log of a run.
    fn begin_log(&self, host: &NodeContext) -> Log {
        let path = host.pod_directory(&self.uid).join(format!("{}-{}", self.container, host.random.suffix(5)));
        let pod = (self.namespace.clone(), self.pod.clone());
        host.logs.begin(&pod, &self.uid, &self.container, path, host.clock.clone())
    }
}

/// Returns the event of a failed hook. The output of its command may contain secrets, so it goes to the log of the node
/// only.
pub(crate) fn hook_failed(container: &str, which: &str, why: &str) -> Event {
    tracing::debug!(container, which, why, "a hook has failed");
    let reason = if which == "PreStop" { "FailedPreStopHook" } else { "FailedPostStartHook" };
    Event { container: Some(container.into()), warning: true, reason, message: format!("{which}Hook failed") }
}

/// Records the output until the process has ended, and returns the exit code.
async fn record_until_end(
    process: &Process,
    has_pid_namespace: bool,
    log: &Log,
    stdout: Tee,
    stderr: Option<Tee>,
) -> i32 {
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
    let about = Some(container.name.clone());
    (!paths.is_empty()).then_some(Event { container: about, warning: true, reason: "VolumesElsewhere", message })
}
