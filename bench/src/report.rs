//! Results of benchmarks, and their report.

use std::{fmt::Write, time::Duration};

use anyhow::Result;

/// The result of a benchmark.
pub(crate) struct Outcome {
    /// The name that selects it on the command line.
    pub(crate) name: &'static str,
    /// The value that is compared with the limit.
    pub(crate) figure: f64,
    /// The unit of the value.
    pub(crate) unit: &'static str,
    /// The limit.
    pub(crate) limit: Limit,
    /// Further values, in prose.
    pub(crate) details: String,
    /// The method of measurement.
    pub(crate) method: &'static str,
}

/// The limit of a value.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Outcome {
    pub(crate) fn within(&self) -> bool {
        match self.limit {
            Limit::AtMost(limit) => self.figure <= limit,
            Limit::AtLeast(limit) => self.figure >= limit,
        }
    }

    fn limit(&self) -> String {
        match self.limit {
            Limit::AtMost(limit) => format!("≤ {limit} {}", self.unit),
            Limit::AtLeast(limit) => format!("≥ {limit} {}", self.unit),
        }
    }
}

/// The results of a run.
pub(crate) struct Report {
    machine: String,
    outcomes: Vec<Outcome>,
    /// The benchmarks that failed, with the reason.
    failures: Vec<(&'static str, String)>,
}

impl Report {
    pub(crate) fn new(machine: String) -> Self {
        Self { machine, outcomes: Vec::new(), failures: Vec::new() }
    }

    pub(crate) fn machine(&self) -> &str {
        &self.machine
    }

    /// Returns whether every benchmark has a result that is within its limit.
    pub(crate) fn within(&self) -> bool {
        self.failures.is_empty() && self.outcomes.iter().all(Outcome::within)
    }

    /// Adds the results of a benchmark, or its failure, which doesn't stop the other benchmarks.
    pub(crate) fn try_add(&mut self, name: &'static str, outcomes: Result<Vec<Outcome>>) {
        match outcomes {
            Ok(outcomes) => outcomes.into_iter().for_each(|outcome| self.add(outcome)),
            Err(error) => {
                println!("{name:<18} FAILED: {error:#}");
                self.failures.push((name, format!("{error:#}")));
            }
        }
    }

    /// Prints a result and adds it.
    pub(crate) fn add(&mut self, outcome: Outcome) {
        let verdict = if outcome.within() { "ok" } else { "OVER ITS LIMIT" };
        println!(
            "{:<18} {:>9.1} {:<10} ({}) {verdict}; {}",
            outcome.name,
            outcome.figure,
            outcome.unit,
            outcome.limit(),
            outcome.details
        );
        self.outcomes.push(outcome);
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from("# Results\n\nThe last run of `cargo xtask bench`, which rewrites this file.\n\n");
        _ = writeln!(text, "Machine: {}.\n", self.machine);
        text.push_str("| benchmark | figure | held to | more |\n|---|---|---|---|\n");
        for outcome in &self.outcomes {
            let mark = if outcome.within() { "" } else { " **missed**" };
            _ = writeln!(
                text,
                "| {} | {:.1} {}{mark} | {} | {} |",
                outcome.name,
                outcome.figure,
                outcome.unit,
                outcome.limit(),
                outcome.details
            );
        }
        for (name, why) in &self.failures {
            _ = writeln!(text, "| {name} | **failed** | | {why} |");
        }
        text.push_str("\n## How each was taken\n");
        for outcome in &self.outcomes {
            _ = write!(text, "\n**{}.** {}\n", outcome.name, outcome.method);
        }
        text
    }
}

/// Returns the percentile of the samples, by nearest rank.
pub(crate) fn percentile(samples: &mut [Duration], percent: usize) -> Duration {
    samples.sort_unstable();
    let rank = (samples.len() * percent).div_ceil(100).max(1);
    samples.get(rank - 1).copied().unwrap_or_default()
}

/// Returns a duration in milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
