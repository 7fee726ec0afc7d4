//! Connections to running containers: commands in them (`pods/exec`), their own streams (`pods/attach`), and their
//! ports (`pods/portforward`).

mod action;
mod attach;
mod command;
mod ports;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use self::{
    action::{Connection, ConnectionAction},
    attach::Tee,
};
use super::{
    log::Stream,
    process::{CommandLine, Processes},
    process_streams::Stdin,
};

/// The number of chunks of output that are kept for attached clients.
const CHUNKS: usize = 64;

/// The namespace and name of a pod, and the name of a container.
type ContainerName = [String; 3];

/// A running container.
#[derive(Debug)]
pub(crate) struct RunningContainer {
    /// The UID of its pod.
    pub(crate) uid: String,
    /// Starts commands.
    pub(crate) processes: Processes,
    /// The environment, working directory and namespaces of commands in it; each has other arguments.
    pub(crate) line: CommandLine,
    /// The ID of its process, which leads a process group.
    pub(crate) process: u32,
    /// The IDs of the processes of commands that run in it.
    pub(crate) commands: Mutex<BTreeSet<u32>>,
    /// The address of its pod.
    pub(crate) address: String,
    /// The output, for attached clients.
    pub(crate) output: broadcast::Sender<(Stream, Bytes)>,
    /// The input, unless a client is attached to it.
    pub(crate) stdin: Mutex<Option<Stdin>>,
    /// Whether the input ends with the first client that is attached to it.
    pub(crate) stdin_once: bool,
    /// Runs commands, which continue without their clients.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the container has ended.
    pub(crate) ended: CancellationToken,
}

/// Creates the channel of a container's output.
pub(crate) fn output() -> broadcast::Sender<(Stream, Bytes)> {
    broadcast::Sender::new(CHUNKS)
}

/// The running containers of a node. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningContainers(Arc<Mutex<BTreeMap<ContainerName, Arc<RunningContainer>>>>);

/// An entry of [`RunningContainers`]. Dropping it ends the connections to the container.
#[derive(Debug)]
pub(crate) struct Running {
    containers: RunningContainers,
    name: ContainerName,
    container: Arc<RunningContainer>,
}

impl RunningContainers {
    /// Adds a container for as long as the entry exists.
    pub(crate) fn add(&self, name: ContainerName, container: RunningContainer) -> Running {
        let container = Arc::new(container);
        self.0.lock().insert(name.clone(), container.clone());
        Running { containers: self.clone(), name, container }
    }

    /// Returns a running container of a pod.
    pub(crate) fn find(&self, name: &ContainerName, uid: &str) -> Option<Arc<RunningContainer>> {
        self.0.lock().get(name).filter(|container| container.uid == uid).cloned()
    }

    /// Returns a running container of a pod.
    pub(crate) fn any(&self, namespace: &str, pod: &str, uid: &str) -> Option<Arc<RunningContainer>> {
        let containers = self.0.lock();
        let first = [namespace.to_owned(), pod.to_owned(), String::new()];
        let of_pod = containers.range(first..).take_while(|(name, _)| name[0] == namespace && name[1] == pod);
        of_pod.map(|(_, container)| container).find(|container| container.uid == uid).cloned()
    }

    /// Returns the processes of all containers.
    pub(crate) fn processes(&self) -> Vec<ContainerProcesses> {
        let containers = self.0.lock();
        let processes = |(name, container): (&ContainerName, &Arc<RunningContainer>)| ContainerProcesses {
            uid: container.uid.clone(),
            name: name[2].clone(),
            process: container.process,
            commands: container.commands.lock().iter().copied().collect(),
        };
        containers.iter().map(processes).collect()
    }
}

/// The IDs of the processes of a container that lead process groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerProcesses {
    /// The UID of the pod.
    pub(crate) uid: String,
    /// The name of the container.
    pub(crate) name: String,
    /// The container's own process.
    pub(crate) process: u32,
    /// The processes of commands in the container.
    pub(crate) commands: Vec<u32>,
}

impl ContainerProcesses {
    /// Returns each leader, and the container's own process.
    pub(crate) fn leaders(&self) -> impl Iterator<Item = (u32, u32)> {
        self.commands.iter().copied().chain([self.process]).map(|leader| (leader, self.process))
    }
}

/// A command that counts among the processes of a container until this is dropped.
#[derive(Debug)]
struct RunningCommand<'a> {
    container: &'a RunningContainer,
    process: u32,
}

impl RunningContainer {
    /// Counts the process of a command among those of the container.
    fn add_command(&self, process: u32) -> RunningCommand<'_> {
        self.commands.lock().insert(process);
        RunningCommand { container: self, process }
    }
}

impl Drop for RunningCommand<'_> {
    fn drop(&mut self) {
        self.container.commands.lock().remove(&self.process);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.container.ended.cancel();
        let mut containers = self.containers.0.lock();
        // Its next run may have begun.
        if containers.get(&self.name).is_some_and(|present| Arc::ptr_eq(present, &self.container)) {
            containers.remove(&self.name);
        }
    }
}
