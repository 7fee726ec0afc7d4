//! The settings of a search that come from outside of the test.

use std::{env, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    error::{SimulationError, VARIABLE},
    progress::Progress,
    scenario::Scenario,
    schedule::Schedule,
    search::{self, Budget, Search},
};

/// The settings of a search. Without seconds and runs, it tries single faults, first one of each kind, for at most the
/// time of the scenario. With one of them, it goes on with several faults at once until these are used up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Settings {
    /// The seconds of real time that the search may take. The run in progress is finished.
    pub seconds: Option<u64>,
    /// The maximum number of runs.
    pub runs: Option<usize>,
    /// The seed.
    pub seed: u64,
    /// The schedule of the only run.
    pub replay: Option<Schedule>,
    /// The directory to which the stories of failures are written. By default none.
    pub report: Option<PathBuf>,
    /// The file to which the progress is appended several times a second, each time one line with the [`Search`] until
    /// now as JSON. By default none.
    pub progress: Option<PathBuf>,
}

impl Settings {
    /// Reads the environment variable. If it isn't set, these are the defaults.
    ///
    /// # Errors
    /// If the value is malformed.
    pub fn from_env() -> Result<Self, serde_json::Error> {
        match env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => serde_json::from_str(&text),
            _ => Ok(Self::default()),
        }
    }

    /// Searches, or repeats the run of a schedule.
    ///
    /// # Errors
    /// If a cluster can't be started.
    pub fn search(&self, scenario: &Scenario) -> Result<Search, SimulationError> {
        if let Some(schedule) = &self.replay {
            return search::replay(scenario, schedule);
        }
        let has_end = self.seconds.is_some() || self.runs.is_some();
        let time = if has_end { self.seconds.map(Duration::from_secs) } else { Some(scenario.options.time) };
        let budget = Budget { time, runs: self.runs, seed: self.seed, combinations: has_end, ..Budget::default() };
        let mut progress =
            self.progress.as_deref().map(Progress::open).transpose().map_err(SimulationError::Progress)?;
        search::search(scenario, &budget, &mut |search| {
            if let Some(progress) = &mut progress {
                progress.show(search);
            }
        })
    }
}
