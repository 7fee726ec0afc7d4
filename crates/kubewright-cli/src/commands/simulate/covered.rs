//! The coverage of a search, as the test of a scenario writes it, and its description for the user.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use serde::Deserialize;
use serde_json::Value;

/// A search until now.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Covered {
    #[serde(default)]
    phase: String,
    runs: u64,
    writes: u64,
    events: u64,
    requests: u64,
    #[serde(default)]
    steps: u64,
    #[serde(default)]
    states: u64,
    #[serde(default)]
    last_new: u64,
    #[serde(default)]
    singles: Tried,
    #[serde(default)]
    at_writes: Tried,
    #[serde(default)]
    pairs: Tried,
    #[serde(default)]
    random: u64,
    #[serde(default)]
    reconciles: u64,
    #[serde(default)]
    unreached: u64,
    is_complete: bool,
}

/// How many of the planned schedules were run.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Tried {
    tried: u64,
    of: u64,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.tried, self.of)
    }
}

impl Covered {
    /// Returns what is being done.
    pub(super) fn phase(&self) -> &'static str {
        match self.phase.as_str() {
            "singles" => "single faults",
            "pairs" => "pairs of faults",
            "random" => "random schedules",
            "shrinking" => "shrinking what was found",
            _ => "without faults",
        }
    }

    /// Returns how far it is.
    pub(super) fn progress(&self) -> String {
        let Self { runs, states, .. } = self;
        let part = match self.phase.as_str() {
            "singles" => format!(" {},", self.singles),
            "pairs" => format!(" {},", self.pairs),
            "random" => format!(" {},", self.random),
            _ => String::new(),
        };
        format!("{part} {runs} runs, {states} states")
    }

    /// Returns the lines that follow the result.
    pub(super) fn lines(&self) -> Vec<String> {
        let Self { writes, events, requests, steps, singles, at_writes, pairs, random, .. } = self;
        let mut lines = vec![format!(
            "{singles} single faults ({at_writes} at writes), at {writes} writes, {requests} requests, {events} events and {steps} steps of the user"
        )];
        if pairs.of > 0 {
            lines.push(format!("{pairs} pairs of faults that touch one object, and {random} random schedules"));
        }
        let Self { runs, reconciles, states, last_new, unreached, .. } = self;
        lines.push(match runs - last_new.min(runs) {
            0 => format!("{reconciles} reconciles and {states} states, a new one in the last run"),
            since => {
                format!("{reconciles} reconciles and {states} states, nothing new in the last {since} of {runs} runs")
            }
        });
        if *unreached > 0 {
            lines.push(format!("{unreached} faults didn't happen, because the runs ended or went another way before"));
        }
        if !self.is_complete {
            lines.push("more time would try the other single faults".into());
        }
        lines
    }
}

impl fmt::Display for Covered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = if self.is_complete { "each single fault" } else { "some single faults" };
        write!(f, "{} runs, with {faults}", self.runs)
    }
}

/// The lines that a search appends to a file.
#[derive(Debug, Default)]
pub(super) struct Follower {
    file: Option<BufReader<File>>,
    /// The beginning of a line whose end hasn't been written yet.
    begun: String,
}

impl Follower {
    /// Returns the last line that is new, if the file has any. It doesn't exist before the search begins.
    pub(super) fn latest(&mut self, path: &Path) -> io::Result<Option<Value>> {
        if self.file.is_none() {
            match File::open(path) {
                Ok(file) => self.file = Some(BufReader::new(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let mut latest = None;
        while let Some(file) = &mut self.file
            && file.read_line(&mut self.begun)? > 0
        {
            if self.begun.ends_with('\n') {
                latest = serde_json::from_str(&self.begun).ok().filter(Value::is_object);
                self.begun.clear();
            }
        }
        Ok(latest)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn covered() -> Value {
        json!({
            "phase": "pairs", "runs": 120, "writes": 6, "events": 9, "requests": 20, "steps": 2, "isComplete": true, "states": 31, "lastNew": 80,
            "singles": {"tried": 90, "of": 90}, "atWrites": {"tried": 84, "of": 84}, "pairs": {"tried": 28, "of": 300}, "random": 0,
            "reconciles": 840, "unreached": 0, "failures": 0,
        })
    }

    #[test]
    fn a_search_says_what_it_covered() {
        let covered: Covered = serde_json::from_value(covered()).unwrap();
        assert_eq!(covered.to_string(), "120 runs, with each single fault");
        assert_eq!(covered.phase(), "pairs of faults");
        assert_eq!(covered.progress(), " 28 of 300, 120 runs, 31 states");
        assert_eq!(
            covered.lines(),
            [
                "90 of 90 single faults (84 of 84 at writes), at 6 writes, 20 requests, 9 events and 2 steps of the user",
                "28 of 300 pairs of faults that touch one object, and 0 random schedules",
                "840 reconciles and 31 states, nothing new in the last 40 of 120 runs",
            ]
        );
    }

    #[test]
    fn a_line_is_read_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        let mut follower = Follower::default();
        assert_eq!(follower.latest(&path).unwrap(), None);
        fs::write(&path, "{\"runs\": 1}\n{\"ru").unwrap();
        assert_eq!(follower.latest(&path).unwrap(), Some(json!({"runs": 1})));
        assert_eq!(follower.latest(&path).unwrap(), None);
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        io::Write::write_all(&mut file, b"ns\": 2}\n{\"runs\": 3}\n").unwrap();
        assert_eq!(follower.latest(&path).unwrap(), Some(json!({"runs": 3})));
    }
}
