//! A scenario as a test.

use crate::{run::SimulationError, scenario::Scenario, settings::Settings, story};

impl Scenario {
    /// Searches with the settings of the environment variable [`VARIABLE`](crate::VARIABLE). Must be called outside of a tokio
    /// runtime, as in a function with `#[test]`.
    ///
    /// # Panics
    /// If a run has findings, with its story and the line that repeats it; or if a cluster can't be started.
    pub fn test(&self) {
        let settings = Settings::from_env().map_err(SimulationError::Settings);
        match settings.and_then(|settings| settings.search(self)) {
            Ok(search) => {
                if let Some(failure) = search.failures.first() {
                    panic!("{}", story::text(&self.name, failure));
                }
            }
            Err(error) => panic!("the simulation {:?} can't run: {error}", self.name),
        }
    }
}
