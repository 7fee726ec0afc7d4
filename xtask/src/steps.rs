//! Running one chore after another, with a line of progress each and the times at the end.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result, bail};

/// What has run so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration)>,
}

impl Steps {
    /// Runs a command to its end; its output goes where ours goes.
    pub(crate) fn run(&mut self, name: &str, mut command: Command) -> Result<()> {
        self.check(name, || {
            let status = command.status().with_context(|| format!("start {command:?}"))?;
            if !status.success() {
                bail!("{name} failed ({status}): {command:?}");
            }
            Ok(())
        })
    }

    /// Runs a closure as a step.
    pub(crate) fn check(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        eprintln!("==> {name}");
        let start = now();
        step()?;
        self.done.push((name.to_owned(), now().saturating_sub(start)));
        Ok(())
    }

    /// Prints what passed and how long each step took.
    pub(crate) fn summary(&self) {
        let total: Duration = self.done.iter().map(|(_, took)| *took).sum();
        for (name, took) in &self.done {
            eprintln!("    {:>6.1} s  {name}", took.as_secs_f64());
        }
        eprintln!("==> all passed in {:.0} s", total.as_secs_f64());
    }
}

/// The chores are timed by the machine's clock; nothing here is simulated.
#[allow(clippy::disallowed_methods, reason = "the chores depend on nothing of the project, not even its clock")]
fn now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// A cargo command with these arguments, by the cargo that runs us.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    keep_package_from(&mut command);
    command.args(arguments);
    command
}

/// Keeps from a command what cargo tells us of this package, which is none of another cargo's business: build scripts that look at it (ring's does)
/// would run again, and all that is built on them would be built again, each time that somebody else has called cargo in between.
pub(crate) fn keep_package_from(command: &mut Command) {
    let told = std::env::vars_os().map(|(name, _)| name);
    let is_of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for name in told.filter(|name| name.to_str().is_some_and(is_of_package)) {
        command.env_remove(name);
    }
}
