//! The time of the commands that create a project, and of the command that updates its manifests.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kubewright_apimachinery::clock::SharedClock;

use crate::{
    report::{Limit, Outcome, milliseconds, percentile},
    sizes::Sizes,
};

/// The commands that a user types, in order.
const LINES: [&str; 3] = [
    "init --domain tutorial.kubebuilder.io",
    "create api --group batch --version v1 --kind CronJob",
    "create webhook --group batch --version v1 --kind CronJob --defaulting --programmatic-validation",
];

/// Creates a project with a kind and its webhooks from an empty directory, and measures all commands together.
pub(crate) fn project(program: &Path, sizes: &Sizes, clock: &SharedClock) -> Result<Outcome> {
    let program = program.canonicalize().with_context(|| format!("find {}", program.display()))?;
    let mut samples = Vec::with_capacity(sizes.scaffolds);
    for _ in 0..sizes.scaffolds {
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
                  to the exit of the last; 20 rounds. The figure is the 95th percentile.";
    Ok(Outcome { name: "scaffold", figure, unit: "ms", limit: Limit::AtMost(100.0), details, method })
}

/// Generates the manifests of a program with five and more kinds, and compares them with the present ones.
pub(crate) fn manifests(program: &Path, operators: &Path, sizes: &Sizes, clock: &SharedClock) -> Result<Outcome> {
    let program = program.canonicalize().with_context(|| format!("find {}", program.display()))?;
    let operators = operators.canonicalize().with_context(|| format!("find {}", operators.display()))?;
    let folder = tempfile::tempdir().context("make a folder")?;
    let make = || -> Result<Duration> {
        let mut command = Command::new(&program);
        command.args(["manifests", "--quiet", "--program"]).arg(&operators);
        let start = clock.monotonic();
        let status = command.current_dir(&folder).stdin(Stdio::null()).status().context("run kubewright manifests")?;
        if !status.success() {
            bail!("kubewright manifests ended with {status}");
        }
        Ok(clock.monotonic().saturating_sub(start))
    };
    let first = milliseconds(make()?);
    let kinds = fs::read_dir(folder.path().join("config/crd/bases")).context("look at the definitions")?.count();
    if kinds < 5 {
        bail!("there are {kinds} definitions, and five are to be measured");
    }
    let mut samples = (0..sizes.scaffolds).map(|_| make()).collect::<Result<Vec<_>>>()?;
    let figure = milliseconds(percentile(&mut samples, 95));
    let p50 = milliseconds(percentile(&mut samples, 50));
    let details = format!("{kinds} kinds; p50 {p50:.1} ms, the first time {first:.1} ms");
    let method = "`kubewright manifests --program` (release) for the program of the five operators: definitions, role and webhook configurations are made, checked, \
                  and compared with what is there; from spawning it to its end, with the operator's program, which it asks; 20 rounds after a first one, which \
                  writes. The figure is the 95th percentile.";
    Ok(Outcome { name: "manifests", figure, unit: "ms", limit: Limit::AtMost(200.0), details, method })
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
