//! Connections to running containers: commands in them (`pods/exec`).

mod action;
mod command;

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub(crate) use self::action::ExecAction;
use super::process::{CommandLine, Processes};

/// The namespace and name of a pod, and the name of a container.
type ContainerName = [String; 3];

/// A running container.
#[derive(Debug)]
pub(crate) struct RunningContainer {
    /// The UID of its pod.
    pub(crate) uid: String,
    /// Starts commands.
    pub(crate) processes: Processes,
    /// The container's own command. Other commands share its environment and working directory.
    pub(crate) line: CommandLine,
    /// Cancelled when the container has ended.
    pub(crate) ended: CancellationToken,
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
