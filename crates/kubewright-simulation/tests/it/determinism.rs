//! The same schedule makes the same history.

use kubewright_simulation::{Fault, Point, Scenario, Schedule, fault::WriteFault};

use crate::{
    machine::{Behavior, notes_its_instance, register},
    podset,
};

/// `cargo xtask test --all` sets the variable.
fn is_exhaustive() -> bool {
    std::env::var_os("KUBEWRIGHT_EXHAUSTIVE").is_some_and(|value| !value.is_empty())
}

#[test]
fn each_seed_makes_one_history() {
    let scenario = Scenario::new("notes", |manager| register(manager, Behavior::Mended), notes_its_instance);
    for seed in 0..if is_exhaustive() { 1000 } else { 20 } {
        // A fault at one of the first writes, of another kind for each seed.
        let fault = WriteFault::ALL[usize::try_from(seed).unwrap() % WriteFault::ALL.len()];
        let schedule = Schedule::calm(seed).with(Point::Write(usize::from(seed % 2 == 0)), Fault::Write(fault));
        let [first, second] = [(); 2].map(|()| scenario.run(&schedule).unwrap().history.digest());
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn the_same_schedule_makes_the_same_history() {
    let scenario = podset::scenario();
    let faults = [WriteFault::DiedAfter, WriteFault::AnswerLost, WriteFault::Timeout];
    for seed in 0..9 {
        let fault = Fault::Write(faults[seed % faults.len()]);
        let schedule = Schedule::calm(seed as u64).with(Point::Write(seed % 5), fault);
        let (first, second) = (scenario.run(&schedule).unwrap(), scenario.run(&schedule).unwrap());
        let difference = first.history.first_difference(&second.history);
        let records = difference.map(|at| (first.history.records().get(at), second.history.records().get(at)));
        assert_eq!(first.history.digest(), second.history.digest(), "seed {seed}, record {difference:?}: {records:#?}");
    }
}
