//! `kubewright simulate`: searches with the scenarios of a project.

mod covered;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{ExitCode, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use jiff::SignedDuration;
use kubewright_apimachinery::clock::SharedClock;
use serde_json::{Map, Value, json};
use tokio::process::Command;

use self::covered::{Covered, Follower};
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
/// The interval at which the progress is shown.
const TICK: Duration = Duration::from_millis(500);
/// The exit code if something was found.
const FOUND: u8 = 3;

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

With --output json, each line is an object: progress while a scenario is searched with, and then
its result, with what was covered and found.

Exit codes:
  0  nothing was found
  1  a scenario can't be built or run
  2  wrong usage
  3  something was found")]
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

    /// Output format [default: text]
    #[arg(long, short, visible_alias = "format", value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
}

/// Builds the project's tests, and runs those of its scenarios one after the other.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<ExitCode> {
    let package = Package::find(&current_folder()?, None)?;
    let scenarios = scenarios(&package, arguments.scenario.as_deref())?;
    let temporary = tempfile::tempdir().context("create a directory for the findings")?;
    let report = match &arguments.report {
        Some(directory) => std::path::absolute(directory).context("find the directory of the report")?,
        None => temporary.path().to_owned(),
    };
    let simulation = Simulation { package, clock, report, progress: temporary.path().join("progress"), arguments };
    let mut found = Vec::new();
    for scenario in &scenarios {
        if simulation.search(scenario, shell).await? {
            found.push(scenario.name.as_str());
        }
    }
    if found.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(directory) = &simulation.arguments.report {
        shell.status("Written", format!("{} (open the .html files in a browser)", directory.display()));
    }
    let (some, all) = (found.len(), scenarios.len());
    shell.error(&anyhow::anyhow!("{some} of {all} scenarios found something: {}", found.join(", ")));
    Ok(ExitCode::from(FOUND))
}

/// A search with the scenarios of a package.
struct Simulation {
    package: Package,
    clock: SharedClock,
    arguments: Arguments,
    /// The directory of what is found.
    report: PathBuf,
    /// The file to which the tests append their progress.
    progress: PathBuf,
}

impl Simulation {
    /// Searches with a scenario, and prints the result. Returns whether something was found.
    async fn search(&self, scenario: &Scenario, shell: &Shell) -> Result<bool> {
        let file = |extension: &str| self.report.join(format!("{}.{extension}", scenario.name));
        let (story, summary) = (file("txt"), file("summary.json"));
        for file in [&story, &summary, &self.progress] {
            remove(file)?;
        }
        let begun = self.clock.monotonic();
        let output = self.test(scenario, shell).await?;
        let took = self.clock.monotonic().saturating_sub(begun).as_secs();
        let summary = fs::read(&summary).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        let found = !output.status.success();
        let printed = fs::read_to_string(&story);
        if found && printed.is_err() {
            bail!("the scenario {} can't run:\n{}", scenario.name, String::from_utf8_lossy(&output.stdout).trim());
        }
        if self.is_json() {
            let account = fs::read(file("json")).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
            let of_account = |field: &str| account.as_ref().filter(|_| found).map(|account| account[field].clone());
            let result = json!({
                "type": "result", "scenario": scenario.name, "seconds": took, "found": found, "covered": summary,
                "findings": of_account("findings"), "injections": of_account("injections"), "replay": of_account("replay"),
            });
            shell.result(&result.to_string());
            return Ok(found);
        }
        let covered = summary.and_then(|summary| serde_json::from_value::<Covered>(summary).ok());
        let total = covered.as_ref().map(|covered| format!(": {covered}")).unwrap_or_default();
        if found {
            shell.status("Found", format!("something by {} in {took} s{total}", scenario.name));
        } else {
            shell.status("Passed", format!("{} in {took} s{total}", scenario.name));
        }
        covered.iter().flat_map(Covered::lines).for_each(|line| shell.status("", line));
        if found {
            shell.result(printed.unwrap_or_default().trim_end());
        }
        Ok(found)
    }

    /// Runs the test of a scenario, and shows its progress.
    async fn test(&self, scenario: &Scenario, shell: &Shell) -> Result<Output> {
        let mut command = Command::from(cargo(&self.package.folder));
        command.args(["test", "--quiet", "--package", &self.package.name, "--tests", "--", "--exact", &scenario.test]);
        command.env(VARIABLE, self.arguments.settings(&self.report, &self.progress)?).env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().context("start cargo")?;
        let begun = self.clock.monotonic();
        let mut output = std::pin::pin!(child.wait_with_output());
        let mut follower = Follower::default();
        let (mut phase, mut detail) = (String::new(), String::new());
        loop {
            if !self.is_json() {
                let passed = self.clock.monotonic().saturating_sub(begun);
                shell.progress("Simulating", &format!("{}{phase}", scenario.name), &detail, passed);
            }
            let ended = tokio::select! {
                biased;
                output = &mut output => Some(output),
                () = tokio::time::sleep(TICK) => None,
            };
            if let Some(mut line) = follower.latest(&self.progress).context("read the progress")? {
                if let Ok(covered) = serde_json::from_value::<Covered>(line.clone()) {
                    (phase, detail) = (format!(": {}", covered.phase()), covered.progress());
                }
                if self.is_json() {
                    line["type"] = "progress".into();
                    line["scenario"] = scenario.name.clone().into();
                    shell.result(&line.to_string());
                }
            }
            if let Some(output) = ended {
                return output.context("wait for cargo");
            }
        }
    }

    fn is_json(&self) -> bool {
        self.arguments.output == Some(Format::Json)
    }
}

impl Arguments {
    /// Returns the settings for the tests.
    fn settings(&self, report: &Path, progress: &Path) -> Result<String> {
        let paths = [("report", report), ("progress", progress)];
        let mut settings: Map<_, _> = paths.into_iter().map(|(name, path)| (name.to_owned(), json!(path))).collect();
        settings.insert("seed".into(), json!(self.seed));
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

/// Returns the scenarios of a package, or the one with a name. Cargo builds the tests, with its progress on standard
/// error.
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
