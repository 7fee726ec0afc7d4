//! The operator of a test environment.

use kubewright_apimachinery::random::Random;
use kubewright_cluster::faults::Faults;
use kubewright_runtime::{leader::LeaderOptions, manager::Manager};
use tokio::{sync::oneshot, task::JoinHandle};

use super::{NAMESPACE, TestEnv};

impl TestEnv {
    /// Starts the operator with these faults.
    pub fn start(&self, faults: &Faults) -> Operator {
        self.run(self.manager(faults))
    }

    /// Starts a replica of the operator with leader election.
    pub fn start_replica(&self, faults: &Faults, identity: &str) -> Operator {
        self.run(self.manager(faults).leader_election(LeaderOptions::new(NAMESPACE, "operator", identity)))
    }

    fn manager(&self, faults: &Faults) -> Manager {
        Manager::new(faults.client(&self.client())).clock(self.clock.clone()).random(Random::seeded(1))
    }

    fn run(&self, manager: Manager) -> Operator {
        let manager = (self.register)(manager);
        let (stop, stopped) = oneshot::channel::<()>();
        let run = async move {
            manager.run_until(async { stopped.await.unwrap_or_default() }).await.unwrap();
        };
        Operator { stop, task: tokio::spawn(run) }
    }
}

/// A running operator.
#[derive(Debug)]
pub struct Operator {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Operator {
    /// Stops the operator gracefully, as SIGTERM does. Panics if it has ended with an error.
    pub async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }

    /// Aborts the operator, as SIGKILL does. Panics if it has ended before.
    pub async fn kill(self) {
        self.task.abort();
        let ended = self.task.await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "the operator ended by itself");
    }
}
