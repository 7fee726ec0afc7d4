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
    /// Whether the results have to be within their limits.
    limits_held: bool,
}

impl Report {
    pub(crate) fn new(machine: String) -> Self {
        Self { machine, outcomes: Vec::new(), failures: Vec::new(), limits_held: true }
    }

    /// Creates the report of a smoke run, in which benchmarks only have to succeed.
    pub(crate) fn without_limits(machine: String) -> Self {
        Self { limits_held: false, ..Self::new(machine) }
    }

    pub(crate) fn machine(&self) -> &str {
        &self.machine
    }

    /// Returns whether every benchmark has succeeded, with a result that is within its limit if limits are held.
    pub(crate) fn passed(&self) -> bool {
        self.failures.is_empty() && (!self.limits_held || self.outcomes.iter().all(Outcome::within))
    }

    /// Adds the results of a benchmark, or its failure, which doesn't stop the other benchmarks.
    pub(crate) fn add(&mut self, name: &'static str, took: Duration, outcomes: Result<Vec<Outcome>>) {
        match outcomes {
            // With small sizes the figures mean nothing, and the details describe other sizes.
            Ok(outcomes) if !self.limits_held => {
                println!("{name:<18} ran in {:.1} s", took.as_secs_f64());
                self.outcomes.extend(outcomes);
            }
            Ok(outcomes) => outcomes.into_iter().for_each(|outcome| self.add_outcome(outcome)),
            Err(error) => {
                println!("{name:<18} FAILED: {error:#}");
                self.failures.push((name, format!("{error:#}")));
            }
        }
    }

    /// Prints that a benchmark doesn't run, and why.
    pub(crate) fn skip(name: &str, why: &str) {
        println!("{name:<18} skipped: {why}");
    }

    fn add_outcome(&mut self, outcome: Outcome) {
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

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn beyond_its_limit() -> Vec<Outcome> {
        let limit = Limit::AtMost(1.0);
        vec![Outcome { name: "slow", figure: 2.0, unit: "s", limit, details: String::new(), method: "" }]
    }

    #[test]
    fn a_smoke_run_passes_beyond_the_limits_and_fails_if_a_benchmark_fails() {
        let mut whole = Report::new(String::new());
        whole.add("slow", Duration::ZERO, Ok(beyond_its_limit()));
        assert!(!whole.passed());

        let mut smoke = Report::without_limits(String::new());
        smoke.add("slow", Duration::ZERO, Ok(beyond_its_limit()));
        assert!(smoke.passed());
        smoke.add("broken", Duration::ZERO, Err(anyhow!("the watch has ended")));
        assert!(!smoke.passed());
    }
}
