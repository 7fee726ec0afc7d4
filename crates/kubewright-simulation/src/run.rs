//! One run, from its start to its outcome.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use kubewright_apimachinery::{
    clock::{SharedClock, VirtualClock},
    random::Random,
};
use tokio::sync::mpsc;

use crate::{
    certificates::Served,
    error::SimulationError,
    fault::{Fault, UserFault},
    logs,
    oracle::{self, Calm, Expected},
    outcome::Outcome,
    outside::Outside,
    panics,
    prepared::{self, Prepared, runtime},
    process::{Launcher, supervise},
    scenario::Scenario,
    schedule::Schedule,
    sim::Sim,
    state::{Setup, State},
    webhooks::Webhooks,
};

/// The virtual time at which each run starts.
pub(crate) const START: &str = "2020-01-30T10:00:00Z";
/// How long the operator has after the user's last step and after the last fault, in virtual time. The longest back-off
/// is 1000 seconds.
const SETTLE: Duration = Duration::from_secs(1800);
/// How much longer it has after a fault of the world: pods fail for ten minutes, and the time at which an operator has
/// to act may be an hour later.
const SETTLE_WORLD: Duration = Duration::from_secs(2 * 3600);
/// How long nothing may be written then.
const QUIET: Duration = Duration::from_secs(3600);
/// How long nothing may be written after a restart of an operator at rest.
const QUIET_AFTER_RESTART: Duration = Duration::from_secs(600);

/// Runs a scenario once. `calm` is what a run without faults has created.
pub(crate) fn run(
    scenario: &Scenario,
    schedule: &Schedule,
    calm: Option<&Arc<Calm>>,
) -> Result<Outcome, SimulationError> {
    let prepared = Prepared::of(scenario)?;
    let runtime = runtime()?;
    panics::collect();
    let outcome = logs::collect(|| runtime.block_on(execute(scenario, prepared, schedule, calm)));
    drop(runtime);
    panics::end();
    outcome
}

async fn execute(
    scenario: &Scenario,
    prepared: &Prepared,
    schedule: &Schedule,
    calm: Option<&Arc<Calm>>,
) -> Result<Outcome, SimulationError> {
    let (options, Prepared { described, checkpoint }) = (&scenario.options, prepared);
    let (clock, webhooks) = (VirtualClock::starting_at(prepared::time(START)?), Arc::new(Webhooks::default()));
    let builder = prepared::builder(options, &clock, &webhooks).checkpoint(checkpoint);
    let cluster = builder.random(Random::seeded(schedule.seed)).start().await.map_err(SimulationError::Cluster)?;
    let server = cluster.client();
    let own = described.own.clone();
    // The controllers read what there is.
    tokio::time::sleep(Duration::from_secs(1)).await;

    let feed = cluster.api().feed();
    let signal = feed.signal();
    let mut oracles = oracle::all(Expected {
        calm: calm.filter(|_| schedule.ends_alike(options.unconditional)),
        is_comparable: schedule.is_comparable(options.unconditional),
        own: own.clone(),
        rules: described.rules.clone(),
        has_no_fault: schedule.injections.is_empty(),
        is_prompt: schedule.is_prompt(),
        has_orphans: schedule.has(|fault| fault == Fault::User(UserFault::ChildrenOrphaned)),
        certificates: options.certificates.then(|| (served(&webhooks), clock.clone() as SharedClock)),
        deletes_children: schedule.has(|fault| fault == Fault::User(UserFault::DeletedInForeground)),
        reads_feed: options.controllers,
    });
    oracles.retain(|oracle| !options.omitted.contains_key(oracle.name()));
    let has_webhooks = !described.webhooks.is_empty() || described.has_conversions;
    let keeps_conditions = schedule.keeps_conditions(options.unconditional, has_webhooks);
    let (injections, skipped) = (schedule.injections.clone(), schedule.skipped.clone());
    let setup = Setup { injections, skipped, oracles, keeps_conditions };
    let state = State::new(clock.clone(), feed, setup);
    webhooks.record_in(&state);
    let (control, controlled) = mpsc::unbounded_channel();
    let outside = Outside::new(state.clone(), Arc::new(cluster), clock.clone(), own.clone(), control);
    let launcher = Launcher {
        state: state.clone(),
        outside: outside.clone(),
        server,
        clock,
        seed: schedule.seed,
        register: scenario.register,
        old: options.old,
        replicas: options.replicas,
        is_sharded: options.sharded,
        own,
        controllers: options.controllers,
        webhooks: has_webhooks.then_some(webhooks),
        has_certificates: options.certificates,
    };
    let operator = tokio::spawn(supervise(launcher, controlled));
    if has_webhooks {
        // The user begins when they are served.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let sim = Sim::new(outside.clone(), signal, options.old.is_some());
    tokio::select! {
        biased;
        () = state.stopped() => {}
        () = play(scenario, schedule, &sim, &state) => {}
    }
    operator.abort();
    let _ = operator.await;
    outside.shutdown().await;
    let mut outcome = state.finish();
    outcome.findings.retain(|finding| !options.omitted.contains_key(&finding.oracle));
    if schedule.is_behind() {
        // It ends the run, but an operator that is served an older state can't know better until its cache has caught
        // up: it creates children of a deleted object, which are collected at once, or takes back what another process
        // has applied.
        outcome.findings.retain(|finding| finding.oracle != "hot-loop");
    }
    Ok(outcome)
}

/// Returns what the processes serve webhooks with.
fn served(webhooks: &Arc<Webhooks>) -> Served {
    let webhooks = webhooks.clone();
    Arc::new(move || webhooks.certificates())
}

/// Plays the user, and then waits for what must hold at the end.
async fn play(scenario: &Scenario, schedule: &Schedule, sim: &Sim, state: &State) {
    let user = AssertUnwindSafe((scenario.user)(sim)).catch_unwind();
    let is_over = tokio::select! {
        biased;
        () = state.gave_up() => Ok(()),
        is_over = user => is_over,
    };
    if is_over.is_err() {
        // The message has been collected, and is a finding.
        state.follow();
        return;
    }
    let settle = if schedule.is_longer() { SETTLE + SETTLE_WORLD } else { SETTLE };
    sim.advance(settle).await;
    // The operator has as much time after a fault at one of its late requests.
    if let Some(rest) = state.end_faults().and_then(|since| settle.checked_sub(since)) {
        sim.advance(rest).await;
    }
    state.check_finally();
    state.ask(|oracle, seen| oracle.at_rest(seen));
    sim.advance(QUIET).await;
    if schedule.injections.is_empty() {
        // A process that knows nothing yet has nothing to change either.
        state.ask(|oracle, _| {
            oracle.restarted();
            Vec::new()
        });
        sim.restart();
        sim.advance(QUIET_AFTER_RESTART).await;
    }
    state.ask(|oracle, seen| oracle.at_end(seen));
}
