//! The operator's processes: started, killed at a request, and started again, in the version that the run has reached.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::Client;
use kubewright_apimachinery::{clock::VirtualClock, random::Random};
use kubewright_runtime::{
    leader::LeaderOptions,
    manager::Manager,
    shard::ShardOptions,
    trace::{Limits, Traces},
    webhook::SimulatedRotation,
};
use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::sleep,
};

use crate::{
    certificates::rotation_of,
    control::{Behind, Control},
    fault::MEMBERSHIP,
    history::Entry,
    network::Connection,
    oracle::{Finding, Own},
    outside::Outside,
    scenario::Register,
    state::State,
    webhooks::{Serving, Webhooks},
};

/// How long a process takes to be started again.
const RESTART: Duration = Duration::from_secs(1);

/// What is needed to start a process of the operator.
#[derive(Clone)]
pub(crate) struct Launcher {
    pub(crate) state: Arc<State>,
    pub(crate) outside: Arc<Outside>,
    pub(crate) server: Client,
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) seed: u64,
    pub(crate) register: Register,
    /// The version before the upgrade.
    pub(crate) old: Option<Register>,
    pub(crate) replicas: usize,
    /// Whether they divide the objects among themselves, in place of electing a leader.
    pub(crate) is_sharded: bool,
    /// The groups and plurals of the kinds that the operator declares.
    pub(crate) own: Arc<Own>,
    /// Whether the built-in controllers take the place of the operator.
    pub(crate) controllers: bool,
    /// The webhooks that the API server calls, if the operator has any.
    pub(crate) webhooks: Option<Arc<Webhooks>>,
    /// Whether the processes rotate the certificates of their webhooks.
    pub(crate) has_certificates: bool,
}

struct Process {
    number: u64,
    is_dead: Arc<AtomicBool>,
    task: AbortHandle,
}

/// The processes of one run.
struct Processes {
    launcher: Launcher,
    /// By replica.
    running: Vec<Option<Process>>,
    /// Processes beside which others work, and that are killed after a while.
    retiring: Vec<Process>,
    started: u64,
    is_stopped: bool,
    behind: Option<Behind>,
    tasks: JoinSet<Result<(), String>>,
}

/// Runs the operator until the run ends. A process that ends is started again.
pub(crate) async fn supervise(launcher: Launcher, mut control: mpsc::UnboundedReceiver<Control>) {
    let state = launcher.state.clone();
    let running = (0..launcher.replicas).map(|_| None).collect();
    let tasks = JoinSet::new();
    let retiring = Vec::new();
    let mut processes = Processes { launcher, running, retiring, started: 0, is_stopped: false, behind: None, tasks };
    processes.start_all();
    loop {
        tokio::select! {
            biased;
            () = state.stopped() => return,
            Some(control) = control.recv() => processes.obey(control).await,
            Some(ended) = processes.tasks.join_next_with_id() => processes.ended(ended),
        }
    }
}

impl Processes {
    async fn obey(&mut self, control: Control) {
        match control {
            Control::Died(number) => self.died(number, RESTART),
            Control::Left(number) => self.died(number, MEMBERSHIP),
            Control::Join => self.join(),
            Control::Overlap(number, time) => self.overlap(number, time),
            Control::Retire(number) => self.retire(number),
            Control::Start(replica) => self.start(replica),
            Control::Stop => {
                self.is_stopped = true;
                self.kill_all("is stopped");
            }
            Control::Resume => {
                self.is_stopped = false;
                self.start_all();
            }
            Control::Restart(behind) => {
                self.behind = behind;
                self.kill_all("is restarted");
                self.start_all();
            }
        }
    }

    /// Follows a process that has died, and starts it again after a while.
    fn died(&mut self, number: u64, after: Duration) {
        let died = |process: &Process| process.number == number;
        if let Some(replica) = self.running.iter().position(|it| it.as_ref().is_some_and(died)) {
            self.kill(replica, "dies");
            self.later(after, Control::Start(replica));
        }
        self.retire(number);
    }

    fn start_all(&mut self) {
        (0..self.running.len()).for_each(|replica| self.start(replica));
    }

    fn start(&mut self, replica: usize) {
        if self.is_stopped || self.running[replica].is_some() {
            return;
        }
        self.running[replica] = Some(self.new_process(replica));
    }

    fn new_process(&mut self, replica: usize) -> Process {
        let number = self.started;
        self.started += 1;
        self.launcher.start((replica, number), self.behind, &mut self.tasks)
    }

    /// Starts a process beside the others, which is killed when it was a member of their group for a while.
    fn join(&mut self) {
        if !self.is_stopped {
            let process = self.new_process(self.running.len());
            self.later(MEMBERSHIP, Control::Retire(process.number));
            self.retiring.push(process);
        }
    }

    /// Starts a process beside another one, which is killed after this time.
    fn overlap(&mut self, number: u64, time: Duration) {
        let is_it = |process: &Process| process.number == number;
        let Some(replica) = self.running.iter().position(|it| it.as_ref().is_some_and(is_it)) else { return };
        self.retiring.extend(self.running[replica].take());
        self.start(replica);
        self.later(time, Control::Retire(number));
    }

    /// Kills a process beside which others work.
    fn retire(&mut self, number: u64) {
        if let Some(at) = self.retiring.iter().position(|process| process.number == number) {
            let process = self.retiring.remove(at);
            self.end(&process, "is stopped");
        }
    }

    /// Does something to the processes after a while.
    fn later(&self, after: Duration, control: Control) {
        let outside = self.launcher.outside.clone();
        self.launcher.outside.spawn(async move {
            sleep(after).await;
            outside.control(control);
        });
    }

    fn kill_all(&mut self, what: &str) {
        (0..self.running.len()).for_each(|replica| self.kill(replica, what));
        for process in std::mem::take(&mut self.retiring) {
            self.end(&process, what);
        }
    }

    /// Ends a process, as SIGKILL does.
    fn kill(&mut self, replica: usize, what: &str) {
        if let Some(process) = self.running[replica].take() {
            self.end(&process, what);
        }
    }

    fn end(&self, process: &Process, what: &str) {
        process.is_dead.store(true, Ordering::Relaxed);
        process.task.abort();
        self.launcher.state.record(Entry::Process { process: process.number, what: what.into() });
    }

    /// Follows a process that has ended by itself.
    fn ended(&mut self, ended: Result<(Id, Result<(), String>), JoinError>) {
        let (id, what) = match ended {
            Ok((id, Ok(()))) => (id, "ends".into()),
            Ok((id, Err(error))) => (id, format!("ends: {error}")),
            Err(error) if error.is_panic() => {
                self.launcher.state.found(Finding::new("panic", "the process ends by a panic"));
                (error.id(), "ends by a panic".into())
            }
            Err(error) => (error.id(), "is killed".into()),
        };
        // One that was killed is no longer among them.
        let is_it = |process: &Process| process.task.id() == id;
        if let Some(replica) = self.running.iter().position(|it| it.as_ref().is_some_and(is_it)) {
            self.kill(replica, &what);
            self.later(RESTART, Control::Start(replica));
        }
    }
}

impl Launcher {
    fn start(
        &self,
        (replica, number): (usize, u64),
        behind: Option<Behind>,
        tasks: &mut JoinSet<Result<(), String>>,
    ) -> Process {
        let is_dead = Arc::new(AtomicBool::new(false));
        let pause = Arc::default();
        let connection = Connection {
            state: self.state.clone(),
            outside: self.outside.clone(),
            server: self.server.clone(),
            process: number,
            is_dead: is_dead.clone(),
            pause: Arc::clone(&pause),
            behind: behind.map(Arc::new),
            own: self.own.clone(),
            has_webhooks: self.webhooks.is_some(),
            listed: Arc::new(Mutex::default()),
        };
        let random = Random::seeded(self.seed.wrapping_mul(31).wrapping_add(number));
        if self.controllers {
            return self.start_controllers(number, connection, random, tasks);
        }
        let register = self.old.filter(|_| !self.state.has_upgraded()).unwrap_or(self.register);
        let traces = Traces::with_versions(Limits::default());
        self.state.trace(number, traces.clone());
        let manager = Manager::new(connection.client()).clock(self.clock.clone()).random(random);
        let mut manager = manager.traces(traces);
        let identity = format!("replica-{replica}-{number}");
        if self.is_sharded {
            manager = manager.sharding(membership(identity));
        } else if self.replicas > 1 {
            manager = manager.leader_election(candidacy(identity));
        }
        let manager = register(manager);
        // Paths that aren't valid end the process with an error.
        let mut rotation = None;
        if let (Some(webhooks), Ok(Some(routes))) = (&self.webhooks, manager.webhook_routes()) {
            rotation = if self.has_certificates { rotation_of(&manager, (self.seed, number)) } else { None };
            let certificate = rotation.as_ref().map(SimulatedRotation::served);
            webhooks.serve(Serving { process: number, routes, certificate, is_dead: is_dead.clone(), pause });
        }
        self.state.record(Entry::Process { process: number, what: "starts".into() });
        let task = tasks.spawn(async move {
            let run = manager.run_until(std::future::pending::<()>());
            let Some(rotation) = rotation else { return run.await.map_err(|error| error.to_string()) };
            tokio::select! {
                biased;
                ended = run => ended.map_err(|error| error.to_string()),
                () = rotation.run() => Ok(()),
            }
        });
        Process { number, is_dead, task }
    }

    /// Starts the built-in controllers in place of the operator.
    fn start_controllers(
        &self,
        number: u64,
        connection: Connection,
        random: Random,
        tasks: &mut JoinSet<Result<(), String>>,
    ) -> Process {
        let (cluster, is_dead) = (self.outside.cluster.clone(), connection.is_dead.clone());
        self.state.record(Entry::Process { process: number, what: "starts".into() });
        let task = tasks.spawn(async move {
            let server = |component: &str| cluster.component_client(component);
            let client = |component: &str| Connection { server: server(component), ..connection.clone() }.client();
            cluster.run_controllers(client, random).await;
            Ok(())
        });
        Process { number, is_dead, task }
    }
}

/// The factor by which the durations of leases are longer than the default ones. With those, renewals would be most of
/// a run.
const LEASES: u32 = 5;

/// Returns the options of a replica that leads or waits.
fn candidacy(identity: String) -> LeaderOptions {
    let defaults = LeaderOptions::new("default", "operator", identity);
    LeaderOptions {
        lease_duration: LEASES * defaults.lease_duration,
        renew_deadline: LEASES * defaults.renew_deadline,
        retry_period: LEASES * defaults.retry_period,
        ..defaults
    }
}

/// Returns the options of a member of a group.
fn membership(identity: String) -> ShardOptions {
    let defaults = ShardOptions::new("default", "operator", identity);
    ShardOptions {
        lease_duration: LEASES * defaults.lease_duration,
        renew_deadline: LEASES * defaults.renew_deadline,
        retry_period: LEASES * defaults.retry_period,
        ..defaults
    }
}
