//! Processes of the host, each the leader of its own process group.
//!
//! A group is killed as a whole before its leader is reaped, since the leader's ID can't be reused until then. A
//! process that leaves its group on purpose (`setsid`) outlives its container. On Linux it is found when the node
//! closes, by a variable in its environment.

use std::{
    collections::BTreeMap,
    env, io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{self, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::process::{Pid, Resource, Signal, WaitId, WaitIdOptions, getrlimit, kill_process_group, setrlimit, waitid};
use tokio::signal::unix::{SignalKind, signal as signal_stream};

use super::{control_group::ControlGroup, namespace::NetworkNamespace, process_streams::Streams, view::View};

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// The program and its arguments; never empty.
    pub(crate) argv: Vec<String>,
    /// The command that starts the program with restricted privileges; empty if it has those of the node.
    pub(crate) privileges: Vec<String>,
    /// The user that owns its streams, if it isn't the node's.
    pub(crate) user: Option<u32>,
    /// The complete environment.
    pub(crate) environment: Vec<(String, String)>,
    /// The working directory.
    pub(crate) directory: PathBuf,
    /// The view on the file system, if it isn't the host's.
    pub(crate) view: Option<Arc<View>>,
    /// The process of the container whose file system it enters; `None` if it is that process itself.
    pub(crate) container: Option<u32>,
    /// The network namespace, if it isn't the host's.
    pub(crate) network: Option<Arc<NetworkNamespace>>,
    /// The control group, if the memory of its container is limited.
    pub(crate) control_group: Option<Arc<ControlGroup>>,
}

impl CommandLine {
    /// Creates the command of a program of the node itself, with its namespaces, user and privileges.
    pub(crate) fn of_node(argv: Vec<String>, environment: Vec<(String, String)>, directory: PathBuf) -> Self {
        Self {
            argv,
            privileges: Vec::new(),
            user: None,
            environment,
            directory,
            view: None,
            container: None,
            network: None,
            control_group: None,
        }
    }

    /// Sets the variable that names the kind of terminal, as containerd does.
    pub(crate) fn use_terminal(&mut self) {
        if !self.environment.iter().any(|(name, _)| name == "TERM") {
            self.environment.push(("TERM".into(), "xterm".into()));
        }
    }
}

/// An error that prevents a process from starting. The messages are containerd's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    #[error("no command specified")]
    NoCommand,
    #[error("exec: {0:?}: executable file not found in $PATH")]
    NotFound(String),
    #[error("exec: {program:?}: {source}")]
    Failed { program: String, source: io::Error },
    #[error("the node is shutting down")]
    Closed,
}

/// The exit code of a killed container.
pub(crate) const KILLED: i32 = 137;

/// The variable that marks the processes of a node.
const MARK: &str = "KUBEWRIGHT_NODE";

/// Returns the command of a line, without streams.
fn command(line: &CommandLine) -> Result<Command, SpawnError> {
    let name = line.argv.first().ok_or(SpawnError::NoCommand)?;
    let program = find_program(name, line).ok_or_else(|| SpawnError::NotFound(name.clone()))?;
    // The tools find a program by the same variable, and so it gets its name as it was given.
    let given = if name.contains('/') { &program } else { Path::new(name) };
    let is_direct =
        line.view.is_none() && line.network.is_none() && line.control_group.is_none() && line.privileges.is_empty();
    let mut words = line.privileges.iter().map(Path::new).chain([given]);
    // There is at least one.
    let first = words.next().unwrap_or(given);
    let mut command = match &line.view {
        Some(view) => match line.container {
            Some(process) => view.command_in(process, first, &line.directory),
            None => view.command(first, &line.directory),
        },
        None => {
            let mut command = Command::new(if is_direct { &program } else { first });
            if is_direct {
                command.arg0(name);
            }
            command.current_dir(&line.directory);
            command
        }
    };
    if let Some(network) = &line.network {
        command = network.enter(&command);
    }
    if let Some(group) = &line.control_group {
        command = group.enter(&command);
    }
    command
        .args(words)
        .args(&line.argv[1..])
        .env_clear()
        .envs(line.environment.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

fn failed(line: &CommandLine, source: io::Error) -> SpawnError {
    SpawnError::Failed { program: line.argv.first().cloned().unwrap_or_default(), source }
}

/// A child process.
#[derive(Debug)]
enum Child {
    Piped(process::Child),
    InTerminal(tokio::process::Child),
}

impl Child {
    fn id(&self) -> u32 {
        match self {
            Self::Piped(child) => child.id(),
            // A child has an ID until it is reaped.
            Self::InTerminal(child) => child.id().unwrap_or_default(),
        }
    }

    /// Waits until the child has ended, and reaps it.
    fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Piped(child) => child.wait(),
            Self::InTerminal(child) => {
                if let Some(pid) = child.id().and_then(pid) {
                    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
                }
                child.try_wait()?.ok_or_else(|| io::Error::other("the process hasn't ended"))
            }
        }
    }
}

/// All living process groups of a node, so that one call can kill them all.
#[derive(Clone, Debug)]
pub(crate) struct Processes(Arc<Mutex<ProcessTable>>);

#[derive(Debug, Default)]
struct ProcessTable {
    /// The value of [`MARK`], unique to this node.
    id: String,
    /// Whether any process has been started.
    used: bool,
    closed: bool,
    children: BTreeMap<u32, Child>,
}

/// A running process group. Dropping it kills the group.
#[derive(Debug)]
pub(crate) struct Process {
    id: u32,
    /// Whether it was asked to end.
    is_asked: AtomicBool,
    processes: Processes,
}

impl Processes {
    /// Creates an empty set. `id` must be unique to the node.
    pub(crate) fn new(id: String) -> Self {
        Self(Arc::new(Mutex::new(ProcessTable { id, ..ProcessTable::default() })))
    }

    /// Returns the mark of the node's processes.
    pub(crate) fn id(&self) -> String {
        self.0.lock().id.clone()
    }

    /// Starts a process with its standard input closed, and returns its output streams.
    pub(crate) fn spawn(&self, line: &CommandLine) -> Result<(Process, ChildStdout, ChildStderr), SpawnError> {
        let mut command = command(line)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut pipes = None;
        let process = self.start(line, |mark| {
            let mut child = command.env(MARK, mark).spawn()?;
            pipes = child.stdout.take().zip(child.stderr.take());
            Ok(Child::Piped(child))
        })?;
        match pipes {
            Some((stdout, stderr)) => Ok((process, stdout, stderr)),
            None => Err(failed(line, io::Error::other("its output is not connected"))),
        }
    }

    /// Starts a process whose streams can be read and written: pipes, or a terminal.
    pub(crate) fn spawn_with_streams(
        &self,
        line: &CommandLine,
        stdin: bool,
        tty: bool,
    ) -> Result<(Process, Streams), SpawnError> {
        let mut command = command(line)?;
        let mut streams = None;
        let process = self.start(line, |mark| {
            command.env(MARK, mark);
            if tty {
                let (terminal, child) = Streams::in_terminal(command, stdin, line.user)?;
                streams = Some(terminal);
                return Ok(Child::InTerminal(child));
            }
            command.process_group(0);
            let (pipes, child) = Streams::of_pipes(command, stdin, line.user)?;
            streams = Some(pipes);
            Ok(Child::Piped(child))
        })?;
        match streams {
            Some(streams) => Ok((process, streams)),
            None => Err(failed(line, io::Error::other("its streams are not connected"))),
        }
    }

    /// Starts a child, unless the node is shutting down.
    fn start(&self, line: &CommandLine, start: impl FnOnce(&str) -> io::Result<Child>) -> Result<Process, SpawnError> {
        let mut living = self.0.lock();
        if living.closed {
            return Err(SpawnError::Closed);
        }
        living.used = true;
        let child = start(&living.id).map_err(|error| failed(line, error))?;
        let id = child.id();
        living.children.insert(id, child);
        drop(living);
        Ok(Process { id, is_asked: AtomicBool::new(false), processes: self.clone() })
    }

    /// Kills every group, waits until it is gone, and prevents new ones from starting. Blocks for as long as the host
    /// needs to end killed processes, which usually takes microseconds.
    pub(crate) fn close(&self) {
        let mut living = self.0.lock();
        living.closed = true;
        let children = std::mem::take(&mut living.children);
        let id = std::mem::take(&mut living.used).then(|| living.id.clone());
        drop(living);
        for id in children.keys() {
            signal(*id, Signal::KILL);
        }
        for (_, mut child) in children {
            if let Err(error) = child.wait() {
                tracing::warn!(%error, "failed to reap a process");
            }
        }
        if let Some(id) = id {
            kill_left(&id);
        }
    }
}

impl Process {
    /// Returns the ID of the process, which is that of its group.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Sends SIGTERM to the group.
    pub(crate) fn terminate(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
        self.signal(Signal::TERM);
    }

    /// Sends SIGKILL to the group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, which: Signal) {
        // While the lock is held, a listed process has not been reaped, so its ID has not been reused.
        let living = self.processes.0.lock();
        if living.children.contains_key(&self.id) {
            signal(self.id, which);
        }
    }

    /// Returns the exit code of a container whose leader has ended with this status. The first process of a PID
    /// namespace doesn't end by a signal for which it has no handler, until it is killed. Here it does, and so it
    /// counts as killed.
    pub(crate) fn container_exit_code(&self, status: ExitStatus, has_pid_namespace: bool) -> i32 {
        let has_no_handler = has_pid_namespace && status.signal() == Some(Signal::TERM.as_raw());
        if has_no_handler && self.is_asked.load(Ordering::Relaxed) { KILLED } else { exit_code(status) }
    }

    /// Waits until the leader has ended, kills the rest of its group, and reaps the leader.
    pub(crate) async fn ended(&self) -> io::Result<ExitStatus> {
        exited(self.id).await?;
        let child = {
            let mut living = self.processes.0.lock();
            let child = living.children.remove(&self.id);
            if child.is_some() {
                signal(self.id, Signal::KILL);
            }
            child
        };
        match child {
            Some(mut child) => child.wait(),
            None => Err(io::Error::other("the node has killed the process")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.processes.0.lock().children.remove(&self.id);
        if let Some(mut child) = child {
            signal(self.id, Signal::KILL);
            if let Err(error) = child.wait() {
                tracing::warn!(pid = self.id, %error, "failed to reap a process");
            }
        }
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

fn signal(id: u32, which: Signal) {
    let Some(pid) = pid(id) else { return };
    if let Err(error) = kill_process_group(pid, which)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(pid = id, %error, "failed to signal a process group");
    }
}

/// Kills the remaining processes of a node, including those that have left their groups, as far as the system shows
/// them.
pub(crate) fn kill_left(id: &str) {
    let mark = format!("{MARK}={id}");
    // A process may have forked just before it was killed, so the search is repeated.
    (0..5).find(|_| kill_strays(&mark) == 0);
}

/// Kills the processes whose environment contains `mark`, and returns their number and that of the processes
/// whose environment can't be read yet.
#[cfg(target_os = "linux")]
fn kill_strays(mark: &str) -> usize {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let stray = |id: u32| {
        // The handle is opened before the environment is read, so that the kill reaches the process that was checked,
        // even if its ID has been reused.
        let handle = pidfd_open(pid(id)?, PidfdFlags::empty()).ok()?;
        let environment = std::fs::read(format!("/proc/{id}/environ")).ok()?;
        if environment.is_empty() {
            // During `execve`, the environment is empty for a moment. Kernel threads have none, and no executable
            // either.
            return std::fs::read_link(format!("/proc/{id}/exe")).ok().map(drop);
        }
        let marked = environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
        (marked && pidfd_send_signal(&handle, Signal::KILL).is_ok()).then_some(())
    };
    ids.filter_map(stray).count()
}

/// Does nothing, since systems other than Linux don't show the environment of processes.
#[cfg(not(target_os = "linux"))]
fn kill_strays(_mark: &str) -> usize {
    0
}

/// Waits until a child has ended, without reaping it.
async fn exited(id: u32) -> io::Result<()> {
    let pid = pid(id).ok_or_else(|| io::Error::other("no such process id"))?;
    // The signal handler is installed before the check, so that no end in between is missed.
    let mut ends = signal_stream(SignalKind::child())?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while waitid(WaitId::Pid(pid), options)?.is_none() {
        if ends.recv().await.is_none() {
            return Err(io::Error::other("the runtime is shutting down"));
        }
    }
    Ok(())
}

/// Returns a container's exit code as container runtimes define it: 128 plus the signal's number for a killed process.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255)
}

/// Raises this process's limit of open files to the host's maximum, since each container needs three. Go programs such
/// as the kubelet do the same when they start.
pub(crate) fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "failed to raise the limit of open files");
        }
    }
}

/// Gives the signals that a terminal sends their default actions in the programs that this process starts. Without
/// that, a cluster that a shell has started in the background would pass on that they are ignored, and Ctrl-C would
/// have no effect in a command of `kubectl exec`. Programs inherit ignored signals, but not handlers; for this process,
/// a handler that does nothing is the same.
pub(crate) fn stop_ignoring_terminal_signals() {
    // Only Linux tells which signals are ignored.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    for kind in [SignalKind::interrupt(), SignalKind::quit()] {
        let is_ignored = mask.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1);
        if is_ignored && let Err(error) = signal_stream(kind) {
            tracing::debug!(%error, "failed to handle a signal");
        }
    }
}

/// Returns the file to execute: a path unchanged (relative to the working directory), or a bare name from the `PATH`.
fn find_program(name: &str, line: &CommandLine) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.contains('/') {
        let path = line.directory.join(name);
        return on_host(&path, line).exists().then_some(path);
    }
    let path = line.environment.iter().rev().find(|(name, _)| name == "PATH")?;
    env::split_paths(&path.1).map(|folder| folder.join(name)).find(|file| is_executable(&on_host(file, line)))
}

fn on_host(path: &Path, line: &CommandLine) -> PathBuf {
    line.view.as_ref().map_or_else(|| path.to_owned(), |view| view.on_host(path))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::{io::Read, time::Duration};

    use super::*;

    fn line(argv: &[&str]) -> CommandLine {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let environment = vec![("PATH".into(), env::var("PATH").unwrap_or_default())];
        CommandLine::of_node(argv, environment, env::temp_dir())
    }

    fn processes() -> Processes {
        Processes::new(kubewright_apimachinery::random::Random::from_entropy().uuid())
    }

    async fn code(argv: &[&str]) -> i32 {
        let (process, ..) = processes().spawn(&line(argv)).expect("it starts");
        exit_code(process.ended().await.expect("it ends"))
    }

    #[tokio::test]
    async fn exit_codes_and_signals() {
        assert_eq!(code(&["true"]).await, 0);
        assert_eq!(code(&["sh", "-c", "exit 42"]).await, 42);
        assert_eq!(code(&["sh", "-c", "kill -TERM $$"]).await, 143);
        assert_eq!(code(&["cat"]).await, 0, "standard input is closed");
    }

    #[tokio::test]
    async fn a_container_that_ends_by_sigterm_counts_as_killed() {
        async fn codes(script: &str, asked: bool) -> (i32, i32) {
            // The shell writes an error there, if its child is killed first.
            let (process, mut output, _stderr) = processes().spawn(&line(&["sh", "-c", script])).expect("it starts");
            if asked {
                output.read_exact(&mut [0; 6]).expect("it is ready");
                process.terminate();
            }
            let status = process.ended().await.expect("it ends");
            (process.container_exit_code(status, true), process.container_exit_code(status, false))
        }
        assert_eq!(codes("echo ready; exec sleep 1000", true).await, (137, 143));
        assert_eq!(codes("trap 'exit 143' TERM; echo ready; while :; do sleep 0.01; done", true).await, (143, 143));
        assert_eq!(codes("kill -TERM $$", false).await, (143, 143));
    }

    #[tokio::test]
    async fn a_program_that_is_not_there() {
        let error = processes().spawn(&line(&["no-such-tool"])).expect_err("no such program");
        assert_eq!(error.to_string(), "exec: \"no-such-tool\": executable file not found in $PATH");
    }

    #[tokio::test]
    async fn the_leaders_end_is_the_groups_end() {
        let (process, mut output, _) =
            processes().spawn(&line(&["sh", "-c", "sleep 1000 & echo started"])).expect("it starts");
        tokio::time::timeout(Duration::from_secs(10), process.ended()).await.expect("in time").expect("it ends");
        // The sleep process held the pipe open. Now that it is gone, reading reaches the end.
        let mut text = String::new();
        output.read_to_string(&mut text).expect("readable");
        assert_eq!(text, "started\n");
    }

    #[tokio::test]
    async fn closing_kills_all_and_starts_no_more() {
        let processes = processes();
        let (process, mut output, _) = processes.spawn(&line(&["sleep", "1000"])).expect("it starts");
        processes.close();
        let mut text = String::new();
        output.read_to_string(&mut text).expect("readable");
        assert!(matches!(processes.spawn(&line(&["true"])), Err(SpawnError::Closed)));
        drop(process);
    }
}
