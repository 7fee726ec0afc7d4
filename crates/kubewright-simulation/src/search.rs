//! Which schedules are run: none, twice; then each fault at each write and event; then several faults at once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kubewright_apimachinery::{clock::SystemClock, random::Random};

use crate::{
    fault::{EventFault, Fault, ProcessFault, WriteFault},
    history::{Entry, History},
    oracle::{Calm, DETERMINISM, Finding},
    run::{self, Outcome, SimulationError},
    scenario::Scenario,
    schedule::{Point, Schedule},
};

/// The most faults of a random schedule.
const MOST_FAULTS: usize = 4;
/// The number of runs in which a failure with several faults is shrunk.
const SHRINKING: usize = 60;

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
    /// Whether the search goes on with random schedules of several faults, until the time or the runs are used up. Defaults to false.
    pub combinations: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self { time: None, runs: None, seed: 0, failures: 1, combinations: false }
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

    /// Goes on with random schedules of several faults, until the time or the runs are used up.
    pub fn combinations(mut self) -> Self {
        self.combinations = true;
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
    /// The number of events that the operator received in that run.
    pub events: usize,
    /// The number of requests of that run at which faults of the process were tried. Leases don't count.
    pub requests: usize,
    /// Whether every fault was tried alone at every write, event and request.
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

    /// Runs the scenario twice without faults, which must make equal histories, and with each fault at each write of
    /// the operator, at each event that it receives and at each of its requests; then, if the budget says so, with several faults at once, by the random numbers of
    /// the seed. A failure with several faults is [shrunk](Scenario::shrink). Must be called outside of a tokio runtime.
    ///
    /// # Errors
    /// If a cluster can't be started.
    pub fn search(&self, budget: &Budget) -> Result<Search, SimulationError> {
        search(self, budget)
    }
}

/// Runs the scenario twice without faults, then with each fault alone, and then with several.
pub(crate) fn search(scenario: &Scenario, budget: &Budget) -> Result<Search, SimulationError> {
    let clock = SystemClock::shared();
    let mut search = Search { runs: 1, ..Search::default() };
    let schedule = Schedule::calm(budget.seed);
    let mut outcome = run::run(scenario, &schedule, None)?;
    (search.writes, search.events) = (outcome.writes, outcome.events);
    if !scenario.options.omitted.contains_key(DETERMINISM) {
        search.runs += 1;
        let again = run::run(scenario, &schedule, None)?;
        outcome.findings.extend(difference(&outcome.history, &again.history));
    }
    let requests = requests(&outcome.history);
    search.requests = requests.len();
    let calm = Arc::new(std::mem::take(&mut outcome.calm));
    search.add(schedule, outcome);
    let is_over = |search: &Search| {
        budget.time.is_some_and(|time| clock.monotonic() > time)
            || budget.runs.is_some_and(|runs| search.runs >= runs)
            || search.failures.len() >= budget.failures
    };
    let points = points(&search, &requests);
    for (point, fault) in points.iter().flat_map(|(point, faults)| faults.iter().map(|fault| (*point, *fault))) {
        if is_over(&search) {
            return Ok(search);
        }
        search.run(scenario, Schedule::calm(budget.seed).with(point, fault), &calm)?;
    }
    search.is_complete = true;
    let random = Random::seeded(budget.seed);
    let has_end = budget.time.is_some() || budget.runs.is_some();
    while budget.combinations && has_end && points.len() > 1 && !is_over(&search) {
        let before = search.failures.len();
        search.run(scenario, several(&points, &random, budget.seed), &calm)?;
        let found = search.failures.split_off(before);
        for failure in found {
            search.failures.push(scenario.shrink(failure, SHRINKING)?);
        }
    }
    Ok(search)
}

/// Returns the points of a run, with the faults that can happen at each.
fn points(search: &Search, requests: &[(u64, bool)]) -> Vec<(Point, Vec<Fault>)> {
    let writes = (0..search.writes).map(|nth| (Point::Write(nth), WriteFault::ALL.map(Fault::Write).to_vec()));
    let events = (0..search.events).map(|nth| (Point::Event(nth), EventFault::ALL.map(Fault::Event).to_vec()));
    let requests = requests.iter().map(|(number, is_write)| {
        // The process is killed before each write anyway, by a fault of writes.
        let faults = ProcessFault::ALL.into_iter().filter(|fault| !is_write || *fault != ProcessFault::Killed);
        (Point::Request(*number), faults.map(Fault::Process).collect())
    });
    writes.chain(events).chain(requests).collect()
}

/// Returns the numbers of the requests at which the process may fail, and whether each is a write.
fn requests(history: &History) -> Vec<(u64, bool)> {
    let requests = history.records().iter().filter_map(|record| match &record.entry {
        Entry::Request(request) if request.resource != "leases" => Some((request.number, request.write.is_some())),
        _ => None,
    });
    requests.collect()
}

/// Returns a schedule of two to four faults at different points.
fn several(points: &[(Point, Vec<Fault>)], random: &Random, seed: u64) -> Schedule {
    let below = |limit: usize| usize::try_from(random.u64() % limit.max(1) as u64).unwrap_or_default();
    let count = 2 + below(MOST_FAULTS - 1);
    let mut chosen = BTreeMap::new();
    for _ in 0..count {
        let (point, faults) = &points[below(points.len())];
        chosen.insert(*point, faults[below(faults.len())]);
    }
    chosen.into_iter().fold(Schedule::calm(seed), |schedule, (point, fault)| schedule.with(point, fault))
}

/// Compares the histories of two runs of one schedule.
fn difference(first: &History, second: &History) -> Option<Finding> {
    let at = first.first_difference(second)?;
    let [one, other] = [first, second].map(|history| match history.records().get(at) {
        Some(record) => record.to_string(),
        None => "the end".to_owned(),
    });
    let message = format!(
        "two runs with the same seed differ: the operator uses a clock, a random source, a thread or I/O of its own. Record {at} is \
         \"{}\" and \"{}\"",
        one.trim(),
        other.trim()
    );
    Some(Finding::new(DETERMINISM, message))
}

/// Repeats the run of a schedule, compared with one without faults.
pub(crate) fn replay(scenario: &Scenario, schedule: &Schedule) -> Result<Search, SimulationError> {
    let mut search = Search { runs: 1, ..Search::default() };
    let calm = run::run(scenario, &Schedule::calm(schedule.seed), None)?;
    (search.writes, search.events) = (calm.writes, calm.events);
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
