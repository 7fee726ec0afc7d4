//! The operator's process: started, killed at a write, and started again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::Client;
use kubewright_apimachinery::{clock::VirtualClock, random::Random};
use kubewright_runtime::manager::Manager;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinError, JoinSet},
    time::sleep,
};

use crate::{history::Entry, network::Connection, oracle::Finding, scenario::Register, state::State};

/// How long a process takes to be started again.
const RESTART: Duration = Duration::from_secs(1);

/// What is needed to start a process of the operator.
#[derive(Clone)]
pub(crate) struct Launcher {
    pub(crate) state: Arc<State>,
    pub(crate) server: Client,
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) seed: u64,
    pub(crate) register: Register,
}

struct Process {
    number: u64,
    is_dead: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Runs the operator until the run ends. A process that ends is started again.
pub(crate) async fn supervise(launcher: Launcher) {
    let (deaths, mut died) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let mut process = launcher.start(0, &deaths, &mut tasks);
    loop {
        let what = tokio::select! {
            biased;
            () = launcher.state.stopped() => return,
            number = died.recv() => {
                if number != Some(process.number) {
                    continue;
                }
                process.task.abort();
                let _ = tasks.join_next().await;
                "dies".to_owned()
            }
            Some(ended) = tasks.join_next() => launcher.ended(ended),
        };
        process.is_dead.store(true, Ordering::Relaxed);
        launcher.state.record(Entry::Process { process: process.number, what });
        sleep(RESTART).await;
        process = launcher.start(process.number + 1, &deaths, &mut tasks);
    }
}

impl Launcher {
    fn start(
        &self,
        number: u64,
        deaths: &mpsc::UnboundedSender<u64>,
        tasks: &mut JoinSet<Result<(), String>>,
    ) -> Process {
        let is_dead = Arc::new(AtomicBool::new(false));
        let (state, server) = (self.state.clone(), self.server.clone());
        let (is_dead_too, deaths, pause) = (is_dead.clone(), deaths.clone(), Arc::default());
        let connection = Connection { state, server, process: number, is_dead: is_dead_too, pause, deaths };
        let random = Random::seeded(self.seed.wrapping_mul(31).wrapping_add(number));
        let manager = (self.register)(Manager::new(connection.client()).clock(self.clock.clone()).random(random));
        self.state.record(Entry::Process { process: number, what: "starts".into() });
        let task = tasks.spawn(async move {
            manager.run_until(std::future::pending::<()>()).await.map_err(|error| error.to_string())
        });
        Process { number, is_dead, task }
    }

    /// Returns how a process has ended that nobody has killed.
    fn ended(&self, ended: Result<Result<(), String>, JoinError>) -> String {
        match ended {
            Ok(Ok(())) => "ends".into(),
            Ok(Err(error)) => format!("ends: {error}"),
            Err(error) if error.is_panic() => {
                self.state.found(Finding::new("panic", "the process ends by a panic"));
                "ends by a panic".into()
            }
            Err(_) => "is killed".into(),
        }
    }
}
