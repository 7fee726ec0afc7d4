//! The processes of an operator.

use std::sync::Arc;

use kubewright::{clock::VirtualClock, leader::LeaderOptions, manager::Manager, random::Random};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// Adds an operator to a manager.
pub(super) type Register = fn(Manager) -> Manager;

/// The replicas of an operator.
#[derive(Debug)]
pub(super) struct Operator {
    clock: Arc<VirtualClock>,
    replicas: usize,
    processes: Mutex<Vec<JoinHandle<()>>>,
    /// How often processes were started, so that each has random numbers of its own.
    started: Mutex<u64>,
}

impl Operator {
    pub(super) fn new(clock: Arc<VirtualClock>, replicas: usize) -> Self {
        Self { clock, replicas, processes: Mutex::default(), started: Mutex::new(0) }
    }

    /// Ends all processes, as SIGKILL does.
    pub(super) fn kill(&self) {
        for process in self.processes.lock().drain(..) {
            process.abort();
        }
    }

    /// Starts the replicas.
    pub(super) fn start(&self, client: &kube::Client, register: Register) {
        for replica in 0..self.replicas {
            let seed = {
                let mut started = self.started.lock();
                *started += 1;
                *started
            };
            let manager = Manager::new(client.clone()).clock(self.clock.clone()).random(Random::seeded(seed));
            let manager = if self.replicas > 1 {
                let identity = format!("replica-{replica}-{seed}");
                manager.leader_election(LeaderOptions::new("default", "operator", &identity))
            } else {
                manager
            };
            let manager = register(manager);
            let run = async move {
                // A manager that fails ends its process, which is restarted or not, as with a crash.
                let _ = manager.run_until(std::future::pending::<()>()).await;
            };
            self.processes.lock().push(tokio::spawn(run));
        }
    }
}
