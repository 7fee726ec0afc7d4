//! The same schedule makes the same history.

use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::apps::v1::Deployment;
use kubewright_simulation::{
    Fault, Point, Scenario, Schedule, Sim,
    fault::{EventFault, ProcessFault, RestartFault, UserFault, WorldFault, WriteFault},
};
use lolcow_operator::api::v1alpha1::Lolcow;
use serde_json::json;

use crate::{
    machine::{Behavior, notes_its_instance, register},
    podset,
};

/// Returns the number of seeds. `cargo xtask test --all` sets the variable.
fn seeds(few: u64, many: u64) -> u64 {
    let is_exhaustive = std::env::var_os("KUBEWRIGHT_EXHAUSTIVE").is_some_and(|value| !value.is_empty());
    if is_exhaustive { many } else { few }
}

/// Returns a schedule with two faults, other ones for each seed.
fn schedule(seed: u64) -> Schedule {
    let mut faults: Vec<Fault> = WriteFault::ALL.map(Fault::Write).to_vec();
    faults.extend(EventFault::ALL.map(Fault::Event));
    faults.extend([ProcessFault::Killed, ProcessFault::Paused].map(Fault::Process));
    faults.extend(RestartFault::ALL.map(Fault::Restart));
    faults.extend(WorldFault::ALL.map(Fault::World));
    faults.extend(UserFault::ALL.map(Fault::User));
    let number = usize::try_from(seed).unwrap();
    let chosen = [(number, number / faults.len()), (number * 7 + 3, number % 5)];
    chosen.into_iter().fold(Schedule::calm(seed), |schedule, (fault, place)| {
        let fault = faults[fault % faults.len()];
        let point = match fault {
            Fault::Write(_) => Point::Write(place % 7),
            Fault::Event(_) => Point::Event(place % 9),
            Fault::Process(_) => Point::Request(place as u64 % 20),
            _ => Point::Step(place % 3),
        };
        schedule.with(point, fault)
    })
}

/// Runs each schedule twice, on all processors.
fn check(scenario: &Scenario, seeds: u64) {
    let next = AtomicU64::new(0);
    let work = || {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds) {
            check_seed(scenario, seed);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
}

fn check_seed(scenario: &Scenario, seed: u64) {
    let schedule = schedule(seed);
    let [first, second] = [(); 2].map(|()| scenario.run(&schedule).unwrap().history);
    if first.digest() != second.digest() {
        let at = first.first_difference(&second).unwrap();
        let [one, other] = [&first, &second].map(|history| history.records().get(at));
        panic!("{schedule}: record {at} is {one:#?} and {other:#?}");
    }
}

#[test]
fn each_seed_makes_one_history() {
    let scenario = Scenario::new("notes", |manager| register(manager, Behavior::Fixed), notes_its_instance);
    check(&scenario, seeds(20, 1000));
}

#[test]
fn each_seed_makes_one_history_of_podset() {
    check(&podset::scenario(), seeds(9, 250));
}

/// The built-in controllers of Deployments take part.
#[test]
fn each_seed_makes_one_history_of_lolcow() {
    check(&Scenario::new("greets", lolcow_operator::register, greets), seeds(6, 100));
}

pub(crate) async fn greets(sim: &Sim) {
    sim.apply("{apiVersion: my.domain/v1alpha1, kind: Lolcow, metadata: {name: cow}, spec: {greeting: Hello}}").await;
    sim.until("it is deployed", |world| world.get::<Deployment>("cow").is_some()).await;
    sim.edit::<Lolcow>("cow", json!({"spec": {"greeting": "Moo"}})).await;
    sim.advance(std::time::Duration::from_secs(60)).await;
    sim.delete::<Lolcow>("cow").await;
}
