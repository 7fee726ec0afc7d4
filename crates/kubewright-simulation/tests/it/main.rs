//! Tests of the simulator: on a small operator with a bug, on the fixed one, and on PodSet.

mod browser;
mod certificates;
mod conformance;
mod controllers;
mod determinism;
mod machine;
mod outside;
mod overlap;
mod podset;
mod process;
mod webhooks;
mod workspace;

use kubewright_simulation::{Budget, Scenario, Search, VARIABLE, story};

/// Searches a scenario, which must have no findings. Settings in the environment replace the budget; the result is
/// `None` then.
fn search(scenario: &Scenario, budget: &Budget) -> Option<Search> {
    if std::env::var_os(VARIABLE).is_some() {
        scenario.test();
        return None;
    }
    let search = scenario.search(budget).unwrap();
    let story = search.failures.first().map(|failure| story::text(scenario.name(), failure));
    assert!(story.is_none(), "{}", story.unwrap_or_default());
    Some(search)
}
