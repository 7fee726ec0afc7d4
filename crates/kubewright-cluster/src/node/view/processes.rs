//! The process namespaces of containers.

use std::path::{Path, PathBuf};

use tokio::{sync::OnceCell, time::sleep};

use super::{LOOKS, Tools, child_of};
use crate::node::{
    process::{CommandLine, Process, Processes},
    process_streams::Stdin,
};

/// The script of the first process of a namespace, which waits for the end of its input. Orphaned processes become its
/// children; while it ignores SIGCHLD, the kernel reaps them. In `dash`, `trap` can't ignore SIGCHLD, but GNU's `env`
/// can.
const FIRST_PROCESS: &str =
    "ignore='env --ignore-signal=CHLD'; $ignore true 2>/dev/null && exec $ignore cat; trap '' CHLD; exec cat";

/// The processes that a container sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum VisibleProcesses {
    /// Those of the host.
    #[default]
    Host,
    /// Its own, and those of commands in it.
    Own,
    /// Those of the namespace with this file below `/proc`.
    In(PathBuf),
}

impl VisibleProcesses {
    /// Those of the namespace in which a process is.
    pub(crate) fn of(process: u32) -> Self {
        Self::In(format!("/proc/{process}/ns/pid").into())
    }
}

/// The process namespace that the containers of one pod share (`shareProcessNamespace`). It is created when the first
/// of them starts. Dropping it kills all processes in it.
#[derive(Debug, Default)]
pub(crate) struct SharedProcesses(OnceCell<Holder>);

/// A process that keeps the namespace.
#[derive(Debug)]
struct Holder {
    /// The first process of the namespace.
    first: u32,
    _process: Process,
    /// The process ends with its input.
    _stdin: Option<Stdin>,
}

impl SharedProcesses {
    /// Returns the processes of the namespace. The first call creates it.
    ///
    /// # Errors
    /// If it can't be created.
    pub(crate) async fn get(&self, tools: &Tools, processes: &Processes) -> Result<VisibleProcesses, String> {
        let holder = self.0.get_or_try_init(|| Holder::start(tools, processes)).await?;
        Ok(VisibleProcesses::of(holder.first))
    }
}

impl Holder {
    async fn start(tools: &Tools, processes: &Processes) -> Result<Self, String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut argv = vec![text(&tools.unshare)];
        argv.extend(["--pid", "--fork", "--kill-child", "--"].map(str::to_owned));
        argv.extend([text(&tools.shell), "-c".into(), FIRST_PROCESS.into()]);
        let environment = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        let line = CommandLine::of_node(argv, environment, "/".into());
        let started = processes.spawn_with_streams(&line, true, false);
        let (process, streams) =
            started.map_err(|error| format!("failed to create the process namespace of the pod: {error}"))?;
        for _ in 0..LOOKS.0 {
            if let Some(first) = child_of(process.id()) {
                return Ok(Self { first, _process: process, _stdin: streams.stdin });
            }
            sleep(LOOKS.1).await;
        }
        Err("the process namespace of the pod isn't created in time".into())
    }
}
