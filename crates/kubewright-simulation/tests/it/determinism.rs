//! The same schedule makes the same history.

use kubewright_simulation::{Fault, Point, Schedule, fault::WriteFault};

use crate::podset;

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
