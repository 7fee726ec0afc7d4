//! What user, network and processes tell each other.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};

/// An object that the user has written.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) resource: ApiResource,
    /// Absent if the kind has none.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl Target {
    pub(crate) fn api(&self, client: Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }
}

/// An API server whose watch cache is behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    /// The version that the first list of each resource shows.
    pub(crate) version: u64,
    /// Whether the kinds are behind that the operator declares, or all others.
    pub(crate) of_own: bool,
}

/// What happens to the processes.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    /// The process of this number has died.
    Died(u64),
    /// Another process is started beside the one of this number, which is killed after this time.
    Overlap(u64, Duration),
    /// The process of this number has left its group, and is started again when it was away for a while.
    Left(u64),
    /// Another process is started, which is killed when it was a member of the group for a while.
    Join,
    /// The process of this number is killed, and not started again.
    Retire(u64),
    /// The replica of this number has to be started, unless it runs.
    Start(usize),
    /// All processes are killed, and none is started until further notice.
    Stop,
    /// All processes are started that don't run.
    Resume,
    /// All processes are killed and started. An API server that is behind answers them.
    Restart(Option<Behind>),
}
