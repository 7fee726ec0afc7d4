//! One run, from its start to its outcome.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use kubewright_apimachinery::{clock::VirtualClock, random::Random};
use kubewright_cluster::{Cluster, StartError, testing::ApplyError};
use kubewright_runtime::manager::Manager;

use crate::{
    history::History,
    oracle::{self, Calm, Finding},
    panics,
    process::{Launcher, supervise},
    scenario::Scenario,
    schedule::Schedule,
    settings::VARIABLE,
    sim::Sim,
    state::State,
};

/// The virtual time at which each run starts.
const START: &str = "2020-01-30T10:00:00Z";
/// How long the operator has after the user's last step, in virtual time. The longest back-off is 1000 seconds.
const SETTLE: Duration = Duration::from_secs(1800);
/// How long nothing may be written then.
const QUIET: Duration = Duration::from_secs(3600);

/// An error that prevents a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The tokio runtime can't be built.
    #[error("failed to build a runtime")]
    Runtime(#[source] std::io::Error),
    /// The cluster can't be started.
    #[error("failed to start the cluster: {0}")]
    Cluster(#[source] StartError),
    /// The operator's kinds can't be installed.
    #[error("failed to install the operator's kinds: {0}")]
    Install(#[source] ApplyError),
    /// The start of the virtual time is malformed.
    #[error("failed to read the time of the start")]
    Clock(#[source] jiff::Error),
    /// The settings in the environment variable are malformed.
    #[error("failed to read {VARIABLE}: {0}")]
    Settings(#[source] serde_json::Error),
}

/// The result of a run.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// What shouldn't have happened, in the order in which it was found.
    pub findings: Vec<Finding>,
    /// What happened.
    pub history: History,
    /// The number of the operator's writes, without those of leases.
    pub writes: usize,
    /// The number of events that the operator has received, without bookmarks.
    pub events: usize,
    pub(crate) calm: Calm,
}

/// Runs a scenario once. `calm` is what a run without faults has created.
pub(crate) fn run(
    scenario: &Scenario,
    schedule: &Schedule,
    calm: Option<&Arc<Calm>>,
) -> Result<Outcome, SimulationError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.map_err(SimulationError::Runtime)?;
    panics::collect();
    let outcome = runtime.block_on(execute(scenario, schedule, calm));
    drop(runtime);
    panics::end();
    outcome
}

async fn execute(
    scenario: &Scenario,
    schedule: &Schedule,
    calm: Option<&Arc<Calm>>,
) -> Result<Outcome, SimulationError> {
    let clock = VirtualClock::starting_at(START.parse().map_err(SimulationError::Clock)?);
    let builder = Cluster::builder().pods(scenario.options.pods).clock(clock.clone());
    let cluster = builder.random(Random::seeded(schedule.seed)).start().await.map_err(SimulationError::Cluster)?;
    let server = cluster.client();
    let kinds = (scenario.register)(Manager::new(server.clone())).describe().kinds;
    let definitions = kinds.into_iter().filter_map(|kind| kind.versions.into_iter().next());
    cluster.install(definitions).await.map_err(SimulationError::Install)?;
    // The default service account of the namespace is created meanwhile.
    tokio::time::sleep(Duration::from_secs(1)).await;

    let feed = cluster.api().feed();
    let signal = feed.signal();
    let mut oracles = oracle::all(calm);
    oracles.retain(|oracle| !scenario.options.omitted.contains_key(oracle.name()));
    let state = State::new(clock.clone(), feed, schedule.injections.clone(), oracles);
    let launcher = Launcher {
        state: state.clone(),
        server,
        clock: clock.clone(),
        seed: schedule.seed,
        register: scenario.register,
    };
    let operator = tokio::spawn(supervise(launcher));
    let sim = Sim::new(state.clone(), cluster, clock, signal);
    tokio::select! {
        biased;
        () = state.stopped() => {}
        () = play(scenario, &sim, &state) => {}
    }
    operator.abort();
    let _ = operator.await;
    let (history, mut findings, calm, [writes, events]) = state.finish();
    findings.retain(|finding| !scenario.options.omitted.contains_key(&finding.oracle));
    Ok(Outcome { findings, history, writes, events, calm })
}

/// Plays the user, and then waits for what must hold at the end.
async fn play(scenario: &Scenario, sim: &Sim, state: &State) {
    if AssertUnwindSafe((scenario.user)(sim)).catch_unwind().await.is_err() {
        // The message has been collected, and is a finding.
        state.follow();
        return;
    }
    sim.advance(SETTLE).await;
    state.check_finally();
    state.ask(|oracle, seen| oracle.at_rest(seen));
    sim.advance(QUIET).await;
    state.ask(|oracle, seen| oracle.at_end(seen));
}
