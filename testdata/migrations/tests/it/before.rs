//! The operator with the bug: what the book's chapter says of it.

use kubewright::simulation::{Budget, Fault, Point, Scenario, fault::WriteFault};

use crate::migration_simulation::migration;

#[test]
fn a_crash_between_two_writes_makes_a_second_job() {
    let scenario = Scenario::new("migration", migrations::register_before, migration);
    let search = scenario.search(&Budget::default().runs(150)).expect("the scenario runs");
    let failure = search.failures.first().expect("the bug is found");
    let faults: Vec<_> =
        failure.schedule.injections.iter().map(|it| (it.point, it.fault)).collect();
    assert_eq!(faults, [(Point::Write(0), Fault::Write(WriteFault::DiedAfter))]);
    let found: Vec<_> = failure.outcome.findings.iter().map(|it| it.oracle.as_str()).collect();
    assert!(found.contains(&"always"), "{found:?}");
}
