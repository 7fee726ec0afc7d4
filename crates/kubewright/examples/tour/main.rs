//! A tour of the runtime: a short program for each feature, on an embedded cluster of its own.
//!
//! ```console
//! $ cargo run -p kubewright --example tour             # all of them, one after another
//! $ cargo run -p kubewright --example tour -- clients  # one
//! ```
//!
//! Each program is a test too: `cargo test -p kubewright --example tour`.

#![allow(missing_docs, reason = "a program")]
#![allow(clippy::print_stdout, reason = "a program that says what it does")]

mod applying;
mod caching;
mod clients;
mod clusters;
mod controller;
mod conversion;
mod declared;
mod dynamic;
mod finalizer;
mod keys;
mod leader;
mod lifecycle;
mod lock;
mod retries;
mod serving;
mod sharding;
mod sources;
mod stale;
mod traces;
mod upsert;
mod views;
mod watching;
mod webhooks;
mod workspace;

use std::time::Duration;

use kube::{CustomResource, CustomResourceExt};
use kubewright::manager::{Manager, ManagerError};
use kubewright_cluster::{Cluster, Pods};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, task::JoinHandle};

/// The deadline of each wait.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The kind that the controllers of the tour reconcile: the names of people to greet.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "tour.kubewright.dev", version = "v1", kind = "Greeting", namespaced, status = "GreetingStatus")]
pub(crate) struct GreetingSpec {
    /// A greeting is made for each.
    pub(crate) names: Vec<String>,
}

/// The last observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GreetingStatus {
    /// The number of people who have been greeted.
    pub(crate) greeted: usize,
}

/// Starts a cluster with the CRD of greetings.
pub(crate) async fn cluster() -> anyhow::Result<Cluster> {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await?;
    cluster.apply_yaml(&serde_json::to_string(&Greeting::crd())?).await?;
    Ok(cluster)
}

/// Creates or changes the greeting `hello`.
pub(crate) async fn greet(cluster: &Cluster, names: &[&str]) -> anyhow::Result<()> {
    greet_as(cluster, "hello", names).await
}

/// [`greet`] for the greeting of this name.
pub(crate) async fn greet_as(cluster: &Cluster, name: &str, names: &[&str]) -> anyhow::Result<()> {
    let greeting = serde_json::json!({
        "apiVersion": "tour.kubewright.dev/v1", "kind": "Greeting",
        "metadata": {"name": name}, "spec": {"names": names},
    });
    cluster.apply_yaml(&greeting.to_string()).await?;
    Ok(())
}

/// A running manager. The `main` of an operator is `Manager::from_args()?…run().await`.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ManagerError>>,
}

pub(crate) fn start(manager: Manager) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
    Running { stop, task }
}

impl Running {
    /// As SIGTERM would.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let _ = self.stop.send(());
        Ok(self.task.await??)
    }

    /// As if the process were killed.
    pub(crate) async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Waits for a condition.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) -> anyhow::Result<()> {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.map_err(|_| anyhow::anyhow!("it never came: {what}"))
}

/// Each module is a program and a test.
macro_rules! tour {
    ($($stop:ident: $what:literal)*) => {
        #[tokio::main]
        async fn main() -> anyhow::Result<()> {
            let wanted = std::env::args().nth(1);
            let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
            $(if is_wanted(stringify!($stop)) {
                println!("{}: {}", stringify!($stop), $what);
                $stop::run().await?;
            })*
            Ok(())
        }

        #[cfg(test)]
        mod tests {
            $(#[tokio::test]
            async fn $stop() -> anyhow::Result<()> {
                super::$stop::run().await
            })*
        }
    };
}

tour! {
    controller: "a manager, a controller, children, a status, an event"
    lifecycle: "what it says of itself, what else it runs, and its orderly end"
    watching: "another kind by a mapper, predicates, an index"
    caching: "what the cache looks at, and as what: labels, metadata, a kind that comes late"
    views: "only the fields that a controller reads stay in memory"
    declared: "reads of the cache that the compiler checks"
    stale: "a cache that is late, and a run that waits for its own writes"
    dynamic: "a controller for each kind that is defined, as long as it is"
    clusters: "a controller for each of several clusters"
    sources: "a channel, and a task of one's own, wake keys"
    keys: "a controller whose keys are no objects"
    retries: "errors, panics and hanging work: each key waits for itself"
    clients: "what a client can ask for, and its wrappers"
    upsert: "create or update, create or patch"
    applying: "apply only the fields that are named"
    finalizer: "undoing what owner references don't"
    workspace: "memory that is neither spec nor status"
    webhooks: "defaults and checks before an object is stored"
    conversion: "three versions of a kind, and which one is stored"
    traces: "why it reconciled, and what it did"
    serving: "metrics, and a check of one's own"
    leader: "of two replicas one works"
    lock: "the record of the leader in a store of one's own"
    sharding: "three replicas divide the keys"
}
