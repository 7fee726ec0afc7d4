//! The time from a saved file to the first reconcile of the rebuilt operator, in `kubewright dev`.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use kube::config::Kubeconfig;
use kubewright_apimachinery::clock::SharedClock;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    process::{self, Process},
    report::{Limit, Outcome, percentile},
    sizes::Sizes,
};

/// The timeout of the first build, which compiles all dependencies.
const FIRST: Duration = Duration::from_secs(1800);

/// The timeout of each later build.
const PATIENCE: Duration = Duration::from_secs(120);

/// The line to edit: a constant that the reconciler uses.
const EDITED: &str = "const REFUSED_DELAY: Duration = Duration::from_secs(";

/// Edits the CronJob operator repeatedly while it runs.
pub(crate) async fn restart(kubewright: &Path, sizes: &Sizes, clock: &SharedClock) -> Result<Outcome> {
    let project = Project::copy()?;
    let kubewright = kubewright.canonicalize().with_context(|| format!("find {}", kubewright.display()))?;
    let log = project.folder.path().join("log");
    let mut command = Command::new(kubewright);
    command.args(["dev", "--samples", "--pods", "simulate"]).current_dir(project.operator()).stdin(Stdio::null());
    command.env("CARGO_TARGET_DIR", project.target()?).env("CARGO_NET_OFFLINE", "true");
    command.stdout(Stdio::piped()).stderr(File::create(&log).context("make a log")?);
    let told = || fs::read_to_string(&log).unwrap_or_default();
    let (mut dev, kubeconfig) = process::with_kubeconfig(&mut command)?;
    let traces = traces(&kubeconfig)?;
    first_run(&mut dev, &traces, Timestamp::UNIX_EPOCH, FIRST).await.with_context(told)?;
    let mut samples = Vec::with_capacity(sizes.edits);
    for round in 0..sizes.edits {
        let (saved, start) = (clock.now(), clock.monotonic());
        project.edit(round)?;
        first_run(&mut dev, &traces, saved, PATIENCE).await.with_context(told)?;
        samples.push(clock.monotonic().saturating_sub(start));
    }
    dev.end()?;
    let seconds = |percent: usize, samples: &mut Vec<Duration>| percentile(samples, percent).as_secs_f64();
    let figure = seconds(100, &mut samples);
    Ok(Outcome {
        name: "dev",
        figure,
        unit: "s",
        limit: Limit::AtMost(5.0),
        details: format!("p50 {:.2} s", seconds(50, &mut samples)),
        method: "`kubewright dev` (release) of the CronJob operator (debug build) with its samples: from saving its reconciler, in which a constant has \
                 changed, to the first reconcile of the rebuilt and restarted operator; ten edits. The figure is the maximum.",
    })
}

/// Copies and edits the project, and resolves its dependencies. Nothing is built: the first build compiles all
/// dependencies, which takes minutes.
pub(crate) async fn check_project() -> Result<()> {
    let project = Project::copy()?;
    project.edit(0)?;
    let edited = fs::read_to_string(&project.edited).context("read the edited file")?;
    ensure!(edited != project.text, "the edit has not changed {}", project.edited.display());
    let mut cargo = tokio::process::Command::new("cargo");
    cargo.args(["tree", "--offline", "--quiet", "--depth", "1"]).current_dir(project.operator()).kill_on_drop(true);
    let output = cargo.stdin(Stdio::null()).output().await.context("run cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// A copy of the operator in a workspace of its own, with the same settings as this workspace.
struct Project {
    folder: TempDir,
    repository: PathBuf,
    edited: PathBuf,
    text: String,
}

impl Project {
    fn copy() -> Result<Self> {
        let folder = tempfile::tempdir().context("make a folder")?;
        let repository = std::env::current_dir().context("find the current folder")?;
        copy(&repository.join("operators/cronjob"), &folder.path().join("operator"))?;
        let manifest = fs::read_to_string("Cargo.toml").context("read Cargo.toml")?;
        let members = manifest.lines().find(|line| line.starts_with("members = ")).context("Cargo.toml has members")?;
        let manifest = manifest.replace(members, "members = [\"operator\"]");
        let manifest = manifest.replace("path = \"", &format!("path = \"{}/", repository.display()));
        fs::write(folder.path().join("Cargo.toml"), manifest).context("write Cargo.toml")?;
        fs::copy("Cargo.lock", folder.path().join("Cargo.lock")).context("copy Cargo.lock")?;
        let (edited, text) =
            find(&folder.path().join("operator/src"))?.with_context(|| format!("no source has {EDITED}"))?;
        Ok(Self { folder, repository, edited, text })
    }

    fn operator(&self) -> PathBuf {
        self.folder.path().join("operator")
    }

    fn target(&self) -> Result<PathBuf> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        let target = self.repository.join(target);
        ensure!(target.is_dir(), "{} is no folder", target.display());
        Ok(target)
    }

    fn edit(&self, round: usize) -> Result<()> {
        let (before, after) = self.text.split_once(EDITED).context("the constant is there")?;
        let after = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let text = format!("{before}{EDITED}{}{after}", 100 + round);
        fs::write(&self.edited, text).with_context(|| format!("write {}", self.edited.display()))
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("make {}", to.display()))?;
    for entry in from.read_dir().with_context(|| format!("read {}", from.display()))? {
        let entry = entry.context("read a folder")?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
        }
    }
    Ok(())
}

/// Returns the file below a directory that contains the line to edit.
fn find(folder: &Path) -> Result<Option<(PathBuf, String)>> {
    for entry in folder.read_dir().with_context(|| format!("read {}", folder.display()))? {
        let path = entry.context("read a folder")?.path();
        let found = if path.is_dir() {
            find(&path)?
        } else {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            text.contains(EDITED).then_some((path, text))
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Returns the address of the operator's traces from the kubeconfig, as `host:port`.
fn traces(kubeconfig: &str) -> Result<String> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("read the kubeconfig")?;
    let noted = kubeconfig.extensions.iter().flatten().find_map(|extension| extension.extension["traces"].as_str());
    let address =
        noted.and_then(|address| address.strip_prefix("http://")).context("the kubeconfig notes no traces")?;
    Ok(address.to_owned())
}

/// Waits for the first reconcile of an operator that was started after `after`.
async fn first_run(dev: &mut Process, traces: &str, after: Timestamp, patience: Duration) -> Result<()> {
    let looked = timeout(patience, async {
        loop {
            dev.check()?;
            // The operator may not listen yet, or not any more.
            if page(traces).await.is_ok_and(|page| has_begun(&page, after)) {
                return Ok(());
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    match looked.await {
        Ok(result) => result,
        Err(_) => bail!("no new operator has reconciled anything after {} s", patience.as_secs()),
    }
}

/// Returns whether a reconcile is about an object that existed when the operator started.
fn has_begun(page: &Value, after: Timestamp) -> bool {
    page["runs"].as_array().into_iter().flatten().any(|run| {
        let started = run["started"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        let triggers = run["triggers"].as_array().into_iter().flatten();
        started.is_some_and(|started| started > after)
            && triggers.map(|trigger| &trigger["reason"]).any(|reason| reason == "initialList" || reason == "added")
    })
}

async fn page(address: &str) -> Result<Value> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /debug/traces/cronjob-controller HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer")?;
    Ok(serde_json::from_str(body)?)
}
