//! Which schedules are run: none, twice; then each fault at each point; then pairs of faults that touch the same
//! object; then several faults at once, guided by the states that are reached.

mod coverage;
mod plan;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kubewright_apimachinery::{clock::SystemClock, random::Random};
use serde::{Serialize, Serializer};

pub use self::coverage::{Phase, Tried};
use self::plan::{Plan, below};
use crate::{
    error::SimulationError,
    fault::Fault,
    history::History,
    oracle::{Calm, DETERMINISM, Finding},
    outcome::Outcome,
    run,
    scenario::Scenario,
    schedule::{Point, Schedule},
};

/// The number of runs in which a failure is shrunk.
const SHRINKING: usize = 60;
/// The real time in which a failure is shrunk, if the time of the search is limited. The run in progress is finished.
const SHRINKING_TIME: Duration = Duration::from_secs(60);

/// How much a search may take.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Budget {
    /// The real time. The run in progress is finished, and a failure is shrunk for at most another minute. By default
    /// unlimited.
    pub time: Option<Duration>,
    /// The number of runs. By default unlimited.
    pub runs: Option<usize>,
    /// The seed of the random numbers of each run.
    pub seed: u64,
    /// The number of failures after which the search ends. Defaults to 1.
    pub failures: usize,
    /// Whether the search goes on with pairs of faults and random schedules of several faults, until the time or the
    /// runs are used up. Defaults to false.
    pub combinations: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self { time: None, runs: None, seed: 0, failures: 1, combinations: false }
    }
}

impl Budget {
    /// Sets the real time. The run in progress is finished, and a failure is shrunk for at most another minute.
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

    /// Goes on with pairs of faults and random schedules of several faults, until the time or the runs are used up.
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

/// The result of a search, or of its part until now.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Search {
    /// What is being done.
    pub phase: Phase,
    /// The number of runs.
    pub runs: usize,
    /// The number of the operator's writes in the run without faults.
    pub writes: usize,
    /// The number of events that the operator received in that run.
    pub events: usize,
    /// The number of requests of that run at which faults of the process were tried. Leases don't count.
    pub requests: usize,
    /// The number of the user's steps.
    pub steps: usize,
    /// Whether every fault was tried alone at every write, event, request and step.
    pub is_complete: bool,
    /// The number of different states of the cluster that were reached, without names and times.
    pub states: usize,
    /// The number of the run that reached a new state last, counted from 1.
    pub last_new: usize,
    /// How many of the faults were tried alone, over all points.
    pub singles: Tried,
    /// How many of them were tried at writes.
    pub at_writes: Tried,
    /// How many pairs of faults that touch the same object were tried. Both numbers are 0 before the phase
    /// [`Phase::Pairs`].
    pub pairs: Tried,
    /// The number of random schedules.
    pub random: usize,
    /// The number of reconciles in all runs.
    pub reconciles: usize,
    /// The number of faults that didn't happen, because no run reached their points.
    pub unreached: usize,
    /// The runs with findings, in the order of the search. As JSON their number.
    #[serde(serialize_with = "count")]
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
    /// Runs the scenario once. Must be called outside of a tokio runtime. The oracles that compare with a run without
    /// faults have nothing to say.
    ///
    /// # Errors
    /// If the cluster can't be started.
    pub fn run(&self, schedule: &Schedule) -> Result<Outcome, SimulationError> {
        run::run(self, schedule, None)
    }

    /// Runs the scenario twice without faults, which must make equal histories; with one fault of each kind; and with
    /// each fault at each write of the operator, at each event that it receives, at each of its requests and at each
    /// step of the user. Then, if the budget says so, with several faults at once: pairs that touch the same object,
    /// and then by the random numbers of the seed, preferably after schedules that have reached a new state. A failure
    /// is [shrunk](Scenario::shrink). Must be called outside of a tokio runtime.
    ///
    /// # Errors
    /// If a cluster can't be started.
    pub fn search(&self, budget: &Budget) -> Result<Search, SimulationError> {
        search(self, budget, &mut |_| {})
    }
}

/// A search in progress.
struct Searching<'a> {
    scenario: &'a Scenario,
    calm: Arc<Calm>,
    search: Search,
    states: BTreeSet<u64>,
    /// The schedules that have reached new states.
    fruitful: Vec<Schedule>,
    is_over: &'a dyn Fn(&Search) -> bool,
    /// The real time, if that of the search is limited.
    time: Option<&'a dyn Fn() -> Duration>,
    show: &'a mut dyn FnMut(&Search),
}

/// Runs the scenario twice without faults, then with each fault alone, and then with several. `show` is called after
/// each run.
pub(crate) fn search(
    scenario: &Scenario,
    budget: &Budget,
    show: &mut dyn FnMut(&Search),
) -> Result<Search, SimulationError> {
    let clock = SystemClock::shared();
    let is_over = |search: &Search| {
        budget.time.is_some_and(|time| clock.monotonic() > time)
            || budget.runs.is_some_and(|runs| search.runs >= runs)
            || search.failures.len() >= budget.failures
    };
    let schedule = Schedule::calm(budget.seed);
    let mut outcome = run::run(scenario, &schedule, None)?;
    let plan = Plan::of(&outcome, &scenario.options);
    let mut search = Search { runs: 1, requests: plan.requests(), ..Search::default() };
    (search.writes, search.events, search.steps) = (outcome.writes, outcome.events, outcome.steps);
    if !scenario.options.omitted.contains_key(DETERMINISM) {
        search.runs += 1;
        let again = run::run(scenario, &schedule, None)?;
        outcome.findings.extend(difference(&outcome.history, &again.history));
    }
    let calm = Arc::new(std::mem::take(&mut outcome.calm));
    let (states, fruitful, is_over) = (BTreeSet::new(), Vec::new(), &is_over);
    let elapsed = || clock.monotonic();
    let time = budget.time.map(|_| &elapsed as &dyn Fn() -> Duration);
    let mut searching = Searching { scenario, calm, search, states, fruitful, is_over, time, show };
    searching.add(schedule, outcome);
    if !scenario.options.faults {
        return Ok(searching.search);
    }
    let singles = plan.singles().into_iter().map(|single| vec![single]).collect();
    searching.search.is_complete = searching.all(Phase::Singles, singles, budget.seed)?;
    let has_end = budget.time.is_some() || budget.runs.is_some();
    if budget.combinations && has_end {
        let pairs = plan.pairs().into_iter().map(Vec::from).collect();
        searching.all(Phase::Pairs, pairs, budget.seed)?;
        searching.random(&plan, budget.seed)?;
    }
    Ok(searching.search)
}

impl Searching<'_> {
    /// Runs schedules until the search is over. Returns whether all were run.
    fn all(&mut self, phase: Phase, schedules: Vec<Vec<(Point, Fault)>>, seed: u64) -> Result<bool, SimulationError> {
        self.search.expect(phase, &schedules);
        for faults in schedules {
            if (self.is_over)(&self.search) {
                return Ok(false);
            }
            self.search.count(&faults);
            let with = |schedule: Schedule, (point, fault)| schedule.with(point, fault);
            self.run(faults.into_iter().fold(Schedule::calm(seed), with))?;
        }
        Ok(true)
    }

    /// Runs schedules with several faults until the search is over, every other one after a schedule that has reached a
    /// new state.
    fn random(&mut self, plan: &Plan, seed: u64) -> Result<(), SimulationError> {
        let random = Random::seeded(seed);
        self.search.phase = Phase::Random;
        while plan.singles().len() > 1 && !(self.is_over)(&self.search) {
            let basis = match below(&random, 2) {
                0 => self.fruitful.get(below(&random, self.fruitful.len())),
                _ => None,
            };
            let schedule = plan.several(&random, seed, basis);
            self.search.random += 1;
            self.run(schedule)?;
        }
        Ok(())
    }

    fn run(&mut self, schedule: Schedule) -> Result<(), SimulationError> {
        self.search.runs += 1;
        let outcome = run::run(self.scenario, &schedule, Some(&self.calm))?;
        let (before, has_faults) = (self.search.failures.len(), !schedule.injections.is_empty());
        self.add(schedule, outcome);
        if has_faults
            && self.search.failures.len() > before
            && let Some(failure) = self.search.failures.pop()
        {
            let phase = std::mem::replace(&mut self.search.phase, Phase::Shrinking);
            (self.show)(&self.search);
            let end = self.time.map(|now| now() + SHRINKING_TIME);
            let is_over = || self.time.zip(end).is_some_and(|(now, end)| now() > end);
            let shrunk = self.scenario.shrink_until(failure, SHRINKING, &is_over)?;
            self.search.failures.push(shrunk);
            self.search.phase = phase;
        }
        Ok(())
    }

    fn add(&mut self, schedule: Schedule, mut outcome: Outcome) {
        let before = self.states.len();
        self.states.append(&mut outcome.states);
        self.search.states = self.states.len();
        if self.states.len() > before {
            self.search.last_new = self.search.runs;
            if !schedule.injections.is_empty() {
                self.fruitful.push(schedule.clone());
            }
        }
        self.search.add(schedule, outcome);
        (self.show)(&self.search);
    }
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
    let calm = run::run(scenario, &Schedule { injections: Vec::new(), ..schedule.clone() }, None)?;
    (search.writes, search.events, search.steps) = (calm.writes, calm.events, calm.steps);
    search.runs += 1;
    let outcome = run::run(scenario, schedule, Some(&Arc::new(calm.calm)))?;
    search.add(schedule.clone(), outcome);
    Ok(search)
}

impl Search {
    /// Begins a phase whose schedules are known.
    fn expect(&mut self, phase: Phase, schedules: &[Vec<(Point, Fault)>]) {
        self.phase = phase;
        if phase == Phase::Singles {
            self.singles.of = schedules.len();
            self.at_writes.of = schedules.iter().filter(|faults| is_at_write(faults)).count();
        } else {
            self.pairs.of = schedules.len();
        }
    }

    /// Counts a schedule of the phase.
    fn count(&mut self, faults: &[(Point, Fault)]) {
        if self.phase == Phase::Singles {
            self.singles.tried += 1;
            self.at_writes.tried += usize::from(is_at_write(faults));
        } else {
            self.pairs.tried += 1;
        }
    }

    fn add(&mut self, schedule: Schedule, outcome: Outcome) {
        self.reconciles += outcome.reconciles;
        self.unreached += outcome.unreached.len();
        if !outcome.findings.is_empty() {
            self.failures.push(Failure { schedule, outcome });
        }
    }
}

fn is_at_write(faults: &[(Point, Fault)]) -> bool {
    faults.iter().any(|(point, _)| matches!(point, Point::Write(_)))
}

fn count<S: Serializer>(failures: &[Failure], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(failures.len() as u64)
}
