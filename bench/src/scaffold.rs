//! How long the commands that begin a project take.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kubewright_apimachinery::clock::SharedClock;

use crate::report::{Limit, Outcome, milliseconds, percentile};

const ROUNDS: usize = 20;

/// What a user types, one command after the other.
const LINES: [&str; 3] = [
    "init --domain tutorial.kubebuilder.io",
    "create api --group batch --version v1 --kind CronJob",
    "create webhook --group batch --version v1 --kind CronJob --defaulting --programmatic-validation",
];

/// A project with a kind and its webhooks, from an empty folder, all commands together.
pub(crate) fn project(program: &Path, clock: &SharedClock) -> Result<Outcome> {
    let program = program.canonicalize().with_context(|| format!("find {}", program.display()))?;
    let mut samples = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let root = tempfile::tempdir().context("make a folder")?;
        let folder = root.path().join("cronjob");
        fs::create_dir(&folder).context("make a folder")?;
        samples.push(type_all(&program, &folder, clock)?);
    }
    let figure = milliseconds(percentile(&mut samples, 95));
    let details = format!(
        "p50 {:.1} ms, max {:.1} ms",
        milliseconds(percentile(&mut samples, 50)),
        milliseconds(percentile(&mut samples, 100))
    );
    let method = "`kubewright init`, `create api` and `create webhook` (release) in an empty folder, one after the other, from spawning the first \
                  to the end of the last; 20 rounds. The figure is the 95th percentile.";
    Ok(Outcome { name: "scaffold", figure, unit: "ms", limit: Limit::AtMost(100.0), details, method })
}

fn type_all(program: &Path, folder: &Path, clock: &SharedClock) -> Result<Duration> {
    let start = clock.monotonic();
    for line in LINES {
        let mut command = Command::new(program);
        command.args(line.split(' ')).arg("--quiet").current_dir(folder).stdin(Stdio::null());
        let status = command.status().with_context(|| format!("run kubewright {line}"))?;
        if !status.success() {
            bail!("kubewright {line} ended with {status}");
        }
    }
    Ok(clock.monotonic().saturating_sub(start))
}
