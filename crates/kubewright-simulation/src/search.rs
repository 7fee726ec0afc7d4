//! Which schedules are run: none, then each fault at each write.

use std::{sync::Arc, time::Duration};

use kubewright_apimachinery::clock::SystemClock;

use crate::{
    fault::{Fault, WriteFault},
    oracle::Calm,
    run::{self, Outcome, SimulationError},
    scenario::Scenario,
    schedule::{Point, Schedule},
};

/// How much a search may take.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Budget {
    /// The real time. The run in progress is finished. By default unlimited.
    pub time: Option<Duration>,
    /// The number of runs. By default unlimited.
    pub runs: Option<usize>,
    /// The seed of the random numbers of each run.
    pub seed: u64,
    /// The number of failures after which the search ends. Defaults to 1.
    pub failures: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { time: None, runs: None, seed: 0, failures: 1 }
    }
}

impl Budget {
    /// Sets the real time. The run in progress is finished.
    pub fn time(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// Sets the number of runs.
    pub fn runs(mut self, runs: usize) -> Self {
        self.runs = Some(runs);
        self
    }

    /// Sets the seed of the random numbers of each run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of failures after which the search ends.
    pub fn failures(mut self, failures: usize) -> Self {
        self.failures = failures;
        self
    }
}

/// The result of a search.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Search {
    /// The number of runs.
    pub runs: usize,
    /// The number of the operator's writes in the run without faults.
    pub writes: usize,
    /// Whether every fault was tried at every write.
    pub is_complete: bool,
    /// The runs with findings, in the order of the search.
    pub failures: Vec<Failure>,
}

/// A run with findings.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// What was injected.
    pub schedule: Schedule,
    /// What happened.
    pub outcome: Outcome,
}

impl Scenario {
    /// Runs the scenario once. Must be called outside of a tokio runtime. The oracles that compare with a run without faults have
    /// nothing to say.
    ///
    /// # Errors
    /// If the cluster can't be started.
    pub fn run(&self, schedule: &Schedule) -> Result<Outcome, SimulationError> {
        run::run(self, schedule, None)
    }

    /// Runs the scenario without faults, and with each fault at each write of the operator. Must be called outside of a tokio
    /// runtime.
    ///
    /// # Errors
    /// If a cluster can't be started.
    pub fn search(&self, budget: &Budget) -> Result<Search, SimulationError> {
        search(self, budget)
    }
}

/// Runs the scenario without faults, then with each fault at each write.
pub(crate) fn search(scenario: &Scenario, budget: &Budget) -> Result<Search, SimulationError> {
    let clock = SystemClock::shared();
    let mut search = Search { runs: 1, ..Search::default() };
    let schedule = Schedule::calm(budget.seed);
    let mut outcome = run::run(scenario, &schedule, None)?;
    search.writes = outcome.writes;
    let calm = Arc::new(std::mem::take(&mut outcome.calm));
    search.add(schedule, outcome);
    for (nth, fault) in (0..search.writes).flat_map(|nth| WriteFault::ALL.map(|fault| (nth, fault))) {
        let is_over = budget.time.is_some_and(|time| clock.monotonic() > time)
            || budget.runs.is_some_and(|runs| search.runs >= runs)
            || search.failures.len() >= budget.failures;
        if is_over {
            return Ok(search);
        }
        let schedule = Schedule::calm(budget.seed).with(Point::Write(nth), Fault::Write(fault));
        search.run(scenario, schedule, &calm)?;
    }
    search.is_complete = true;
    Ok(search)
}

/// Repeats the run of a schedule, compared with one without faults.
pub(crate) fn replay(scenario: &Scenario, schedule: &Schedule) -> Result<Search, SimulationError> {
    let mut search = Search { runs: 1, ..Search::default() };
    let calm = run::run(scenario, &Schedule::calm(schedule.seed), None)?;
    search.writes = calm.writes;
    search.run(scenario, schedule.clone(), &Arc::new(calm.calm))?;
    Ok(search)
}

impl Search {
    fn run(&mut self, scenario: &Scenario, schedule: Schedule, calm: &Arc<Calm>) -> Result<(), SimulationError> {
        self.runs += 1;
        let outcome = run::run(scenario, &schedule, Some(calm))?;
        self.add(schedule, outcome);
        Ok(())
    }

    fn add(&mut self, schedule: Schedule, outcome: Outcome) {
        if !outcome.findings.is_empty() {
            self.failures.push(Failure { schedule, outcome });
        }
    }
}
