//! `kubewright simulate`: searches with the scenarios of a project.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use jiff::SignedDuration;
use kubewright_apimachinery::clock::SharedClock;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::process::Command;

use crate::{
    operator::{Package, cargo},
    project::current_folder,
    shell::Shell,
};

/// The environment variable with the settings of a search.
const VARIABLE: &str = "KUBEWRIGHT_SIMULATION";
/// The name of the test that the attribute makes in a module with the name of the scenario.
const TEST: &str = "simulation";
/// The time of each search without `--time` and `--runs`.
const DEFAULT_TIME: Duration = Duration::from_secs(60);

/// Arguments of `kubewright simulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Search for a minute with each scenario of the project
  kubewright simulate

  # Search with one scenario, and write what is found as text, JSON and a page
  kubewright simulate scales --time 5m --report target/simulation

  # Repeat a run that was found
  kubewright simulate scales --replay target/simulation/scales.schedule.json

A scenario is an async function with the attribute kubewright::simulation::scenario, in the
tests of the project. The operator runs on an embedded cluster and on virtual time: without
faults, then with each fault at each place, then with several at once.

Exit codes:
  0  nothing was found
  1  something was found, or a search can't run
  2  wrong usage")]
pub(crate) struct Arguments {
    /// Name of the scenario [default: all]
    scenario: Option<String>,

    /// Time of the search with each scenario [default: 60s unless --runs is given]
    #[arg(long, value_name = "DURATION")]
    time: Option<SignedDuration>,

    /// Maximum number of runs of each scenario
    #[arg(long, value_name = "NUMBER")]
    runs: Option<u64>,

    /// Seed of the random numbers; the same seed searches in the same order
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,

    /// File with the schedule of a run to repeat, as --report writes it
    #[arg(long, value_name = "FILE", requires = "scenario", conflicts_with_all = ["time", "runs", "seed"])]
    replay: Option<PathBuf>,

    /// Directory for what is found: text, JSON, a page and a schedule for each scenario
    #[arg(long, value_name = "DIRECTORY")]
    report: Option<PathBuf>,
}

/// Builds the project's tests, and runs those of its scenarios one after the other.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<()> {
    let package = Package::find(&current_folder()?, None)?;
    let scenarios = scenarios(&package, arguments.scenario.as_deref())?;
    let temporary = tempfile::tempdir().context("create a directory for the findings")?;
    let report = match &arguments.report {
        Some(directory) => std::path::absolute(directory).context("find the directory of the report")?,
        None => temporary.path().to_owned(),
    };
    let settings = arguments.settings(&report)?;
    let mut found = Vec::new();
    for scenario in &scenarios {
        let file = |extension: &str| report.join(format!("{}.{extension}", scenario.name));
        let (story, summary) = (file("txt"), file("summary.json"));
        remove(&story)?;
        remove(&summary)?;
        let begun = clock.monotonic();
        let output = search(&package, scenario, &settings, &clock, shell).await?;
        let took = clock.monotonic().saturating_sub(begun).as_secs();
        let covered = fs::read(&summary).ok().and_then(|text| serde_json::from_slice::<Summary>(&text).ok());
        let covered = covered.map(|it| format!(": {it}")).unwrap_or_default();
        if output.status.success() {
            shell.status("Passed", format!("{} in {took} s{covered}", scenario.name));
            continue;
        }
        let Ok(text) = fs::read_to_string(&story) else {
            bail!("the scenario {} can't run:\n{}", scenario.name, String::from_utf8_lossy(&output.stdout).trim());
        };
        shell.status("Found", format!("something by {} in {took} s{covered}", scenario.name));
        shell.result(text.trim_end());
        found.push(scenario.name.as_str());
    }
    if found.is_empty() {
        return Ok(());
    }
    if let Some(directory) = &arguments.report {
        shell.status("Written", format!("{} (open the .html files in a browser)", directory.display()));
    }
    bail!("{} of {} scenarios found something: {}", found.len(), scenarios.len(), found.join(", "))
}

impl Arguments {
    /// Returns the settings for the tests.
    fn settings(&self, report: &Path) -> Result<String> {
        let mut settings =
            Map::from_iter([("report".to_owned(), json!(report)), ("seed".to_owned(), json!(self.seed))]);
        if let Some(file) = &self.replay {
            let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
            let schedule: Value =
                serde_json::from_str(&text).with_context(|| format!("{} is not a schedule", file.display()))?;
            settings.insert("replay".into(), schedule);
        } else {
            let time = match (self.time, self.runs) {
                (Some(time), _) if !time.is_positive() => bail!("--time {time} is not positive"),
                (Some(time), _) => Some(time.as_secs().max(1)),
                (None, Some(_)) => None,
                (None, None) => Some(DEFAULT_TIME.as_secs() as i64),
            };
            settings.insert("seconds".into(), json!(time));
            settings.insert("runs".into(), json!(self.runs));
        }
        Ok(Value::Object(settings).to_string())
    }
}

/// A scenario of a project.
#[derive(Debug, PartialEq, Eq)]
struct Scenario {
    name: String,
    /// The path of its test.
    test: String,
}

/// What a search covered, as the test of a scenario writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    runs: u64,
    writes: u64,
    events: u64,
    requests: u64,
    is_complete: bool,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, writes, events, requests, is_complete } = self;
        let faults = if *is_complete { "each fault" } else { "some faults" };
        write!(
            f,
            "{runs} runs, with {faults} at the operator's {requests} requests ({writes} writes) and {events} events"
        )
    }
}

/// Returns the scenarios of a package, or the one with a name. Cargo builds the tests, with its progress on standard error.
fn scenarios(package: &Package, name: Option<&str>) -> Result<Vec<Scenario>> {
    let mut list = cargo(&package.folder);
    list.args(["test", "--quiet", "--package", &package.name, "--tests", "--", "--list", TEST])
        .current_dir(&package.folder);
    let output = list.stderr(Stdio::inherit()).output().context("start cargo")?;
    if !output.status.success() {
        bail!("the tests of {} can't be built", package.name);
    }
    let all = parse(&String::from_utf8_lossy(&output.stdout));
    if all.is_empty() {
        bail!(
            "{} has no scenario: write one in its tests, with the attribute kubewright::simulation::scenario",
            package.name
        );
    }
    let Some(name) = name else { return Ok(all) };
    let names = all.iter().map(|scenario| scenario.name.clone()).collect::<Vec<_>>().join(", ");
    let chosen: Vec<_> = all.into_iter().filter(|scenario| scenario.name == name).collect();
    if chosen.is_empty() {
        bail!("{} has no scenario {name:?}; it has {names}", package.name);
    }
    Ok(chosen)
}

/// Reads the scenarios in a list of tests.
fn parse(list: &str) -> Vec<Scenario> {
    let tests = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let scenarios = tests.filter_map(|test| {
        let path = test.strip_suffix(TEST)?.strip_suffix("::")?;
        let name = path.rsplit("::").next()?.to_owned();
        Some(Scenario { name, test: test.to_owned() })
    });
    scenarios.collect()
}

/// Runs the test of a scenario, and shows how long it has been running.
async fn search(
    package: &Package,
    scenario: &Scenario,
    settings: &str,
    clock: &SharedClock,
    shell: &Shell,
) -> Result<Output> {
    let mut command = Command::from(cargo(&package.folder));
    command.args(["test", "--quiet", "--package", &package.name, "--tests", "--", "--exact", &scenario.test]);
    command.env(VARIABLE, settings).env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let child = command.spawn().context("start cargo")?;
    let begun = clock.monotonic();
    let mut output = std::pin::pin!(child.wait_with_output());
    loop {
        shell.progress("Simulating", &scenario.name, clock.monotonic().saturating_sub(begun));
        tokio::select! {
            biased;
            output = &mut output => return output.context("wait for cargo"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Removes the account of an earlier search.
fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_tests_of_a_name() {
        let list =
            "podset::scales::simulation: test\nsimulation: test\nothers::simulation_of: test\n\n1 test, 0 benchmarks\n";
        let expected = Scenario { name: "scales".into(), test: "podset::scales::simulation".into() };
        assert_eq!(parse(list), [expected]);
    }
}
