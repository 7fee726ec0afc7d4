//! A scenario as a test.

use crate::{error::SimulationError, scenario::Scenario, settings::Settings, story};

impl Scenario {
    /// Searches with the settings of the environment variable [`VARIABLE`](crate::VARIABLE). Must be called outside of
    /// a tokio runtime, as in a function with `#[test]`.
    ///
    /// # Panics
    /// If a run has findings, with its story and the line that repeats it; or if a cluster can't be started.
    pub fn test(&self) {
        let result = Settings::from_env().map_err(SimulationError::Settings).and_then(|settings| {
            let search = settings.search(self)?;
            Ok((search, settings.report))
        });
        let (search, report) = match result {
            Ok(done) => done,
            Err(error) => panic!("the simulation {:?} can't run: {error}", self.name),
        };
        if let Some(Err(error)) = report.as_ref().map(|directory| story::write_summary(directory, &self.name, &search))
        {
            panic!("the summary of the simulation {:?} can't be written: {error}", self.name);
        }
        let Some(failure) = search.failures.first() else { return };
        let mut story = story::text(&self.name, failure);
        if let Some(directory) = report {
            match story::write(&directory, &self.name, failure) {
                Ok(files) => files.iter().for_each(|file| story += &format!("\nwritten to {}", file.display())),
                Err(error) => story += &format!("\nfailed to write to {}: {error}", directory.display()),
            }
        }
        panic!("{story}");
    }
}
