//! One run of an operator with its user and at most one fault, on an embedded cluster and on virtual time.
//!
//! [`Sim`] and [`World`] have the methods of the simulator that is planned in `designs/simulation.md`, which replaces this module: it
//! has a few faults, one at a time, and a search that knows nothing of what it has found.

mod fault;
mod network;
mod operator;
mod rights;
mod sim;
mod world;

use std::{cell::Cell, panic, sync::Once};

pub use self::{
    fault::Fault,
    sim::{Sim, Span},
    world::World,
};
use crate::Bug;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// What was wrong, in the order in which it was found.
    pub findings: Vec<String>,
    /// The number of the operator's writes until the end.
    pub writes: usize,
    /// The number of the user's steps.
    pub steps: usize,
}

thread_local! {
    /// The number of panics on this thread, which runs the operator.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Counts panics instead of printing them, on threads that run a trial.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if tokio::runtime::Handle::try_current().is_ok() {
                PANICS.set(PANICS.get() + 1);
            } else {
                print(info);
            }
        }));
    });
}

impl Bug {
    /// Runs the operator with the bug, or the mended one, with this fault.
    ///
    /// # Errors
    /// If the cluster can't be started.
    pub fn run(&self, mended: bool, fault: Option<Fault>) -> Result<Outcome, Box<dyn std::error::Error>> {
        count_panics();
        PANICS.set(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        runtime.block_on(async {
            let operator = if mended { self.mended } else { self.buggy };
            let sim = Sim::start(operator, self.old, self.replicas, fault).await?;
            (self.scenario)(&sim).await;
            let mut outcome = sim.end().await;
            if PANICS.get() > 0 {
                outcome.findings.push("a reconcile panics".into());
            }
            Ok(outcome)
        })
    }

    /// Returns the first fault with which there are findings, and their number of runs: without a fault, then with each fault
    /// at each write, at each step, and of a whole run.
    ///
    /// # Errors
    /// If a cluster can't be started.
    pub fn search(&self, mended: bool) -> Result<Search, Box<dyn std::error::Error>> {
        let mut search = Search { runs: 1, ..Search::default() };
        let calm = self.run(mended, None)?;
        let steps = (0..calm.steps).flat_map(|step| Fault::AT_STEPS.map(|fault| fault(step)));
        let writes = (0..calm.writes).flat_map(|nth| Fault::AT_WRITES.map(|fault| fault(nth)));
        search.findings = calm.findings;
        for fault in writes.chain(steps).chain(Fault::WHOLE) {
            if !search.findings.is_empty() {
                break;
            }
            search.runs += 1;
            search.findings = self.run(mended, Some(fault))?.findings;
            search.fault = Some(fault);
        }
        Ok(search)
    }
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Search {
    /// The number of runs.
    pub runs: usize,
    /// The findings of the last run, empty if there were none in any.
    pub findings: Vec<String>,
    /// The fault of the last run.
    pub fault: Option<Fault>,
}
