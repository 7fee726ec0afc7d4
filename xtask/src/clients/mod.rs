//! `cargo xtask clients`: stock clients in five languages, kubectl and helm, all against one embedded cluster.
//!
//! Each suite is a small test program in [`FOLDER`], which prints a line for each of its cases: `ok CLIENT CASE` or
//! `FAIL CLIENT CASE: REASON`. The results are a table of cases and clients. A case that fails must be in the list of
//! expected failures with its reason, and a case in the list must fail, so that the list only shrinks.
//!
//! Clients are installed below `target/clients`. A suite whose tools aren't on the machine is skipped.

mod relay;
mod report;
mod suite;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};

use self::{relay::Relay, report::Report, suite::SUITES};
use crate::{
    root,
    steps::{Steps, cargo},
};

/// The folder of the test programs.
const FOLDER: &str = "crates/kubewright-cluster/tests/clients";
/// The list of expected failures, in that folder.
const EXPECTED: &str = "expected-failures.txt";
/// The folder of everything that is installed and built.
const BUILD: &str = "target/clients";

/// The embedded cluster, or another one, behind a relay that can cut its connections.
struct TestedCluster {
    process: Option<Child>,
    kubeconfig: String,
    relay: Relay,
}

impl TestedCluster {
    /// Starts an embedded cluster, and waits until it is ready.
    fn start() -> Result<Self> {
        let path = root().join(BUILD).join("cluster.kubeconfig");
        let program = root().join("target/debug/kubewright");
        let mut process = Command::new(&program)
            .args(["cluster", "--wait", "--kubeconfig"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).context("wait for the cluster")?;
        }
        let mut cluster = Self { process: Some(process), kubeconfig: String::new(), relay: Relay::default() };
        cluster.connect(&path)?;
        Ok(cluster)
    }

    /// Uses the cluster of a kubeconfig, which must be on a loopback address.
    fn at(kubeconfig: &Path) -> Result<Self> {
        let mut cluster = Self { process: None, kubeconfig: String::new(), relay: Relay::default() };
        cluster.connect(kubeconfig)?;
        Ok(cluster)
    }

    /// Reads a kubeconfig, and replaces its address by that of a relay.
    fn connect(&mut self, path: &Path) -> Result<()> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let server = text.split("https://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let server = server.with_context(|| format!("{} has no server", path.display()))?;
        let address = server.parse().with_context(|| format!("{server} is not an address and port"))?;
        self.relay = Relay::to(address).context("start a relay")?;
        self.kubeconfig = text.replace(server, &self.relay.address().to_string());
        Ok(())
    }

    /// Sets the variables of a suite. Each suite has a kubeconfig of its own, which it may change.
    fn environment(&self, name: &str, command: &mut Command) -> Result<()> {
        let path = root().join(BUILD).join(format!("{name}.kubeconfig"));
        fs::write(&path, &self.kubeconfig).with_context(|| format!("write {}", path.display()))?;
        let path_variable = std::env::var_os("PATH").unwrap_or_default();
        let programs = [root().join(BUILD).join("bin"), root().join("target/debug")];
        let programs = programs.into_iter().chain(std::env::split_paths(&path_variable));
        command.env("PATH", std::env::join_paths(programs).context("extend PATH")?);
        command.env("KUBECONFIG", &path).env("KUBEWRIGHT_CUT", self.relay.cut_url());
        Ok(())
    }
}

impl Drop for TestedCluster {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = Command::new("kill").arg(process.id().to_string()).status();
            let _ = process.wait();
        }
    }
}

/// Builds the command, and runs all suites, or the one of this name.
pub(crate) fn build_and_run(steps: &mut Steps, name: &str, kubeconfig: Option<&Path>) {
    if kubeconfig.is_some() || steps.run("build of kubewright", cargo(&["build", "-p", "kubewright-cli"])) {
        run(steps, name, kubeconfig);
    } else {
        steps.skip("clients", "kubewright could not be built");
    }
}

/// Runs all suites, or the one of this name, on the cluster of `kubeconfig` or else on an embedded one. Failures are
/// only expected of an embedded one.
pub(crate) fn run(steps: &mut Steps, name: &str, kubeconfig: Option<&Path>) {
    let mut report = Report::default();
    let mut cluster = None;
    let started = steps.check("a cluster for the clients", || {
        fs::create_dir_all(BUILD).with_context(|| format!("create {BUILD}"))?;
        cluster = Some(kubeconfig.map_or_else(TestedCluster::start, TestedCluster::at)?);
        report = Report::expecting(&match kubeconfig {
            None => fs::read_to_string(Path::new(FOLDER).join(EXPECTED)).context("read the expected failures")?,
            Some(_) => String::new(),
        })?;
        Ok(())
    });
    let Some(cluster) = cluster.filter(|_| started) else { return };
    for suite in SUITES.iter().filter(|suite| name.is_empty() || suite.name == name) {
        let name = format!("client: {}", suite.name);
        if let Some(missing) = suite.missing() {
            steps.skip(&name, &format!("{missing} is not on the machine"));
            continue;
        }
        steps.check(&name, || {
            suite.install(&root().join(FOLDER), &root().join(BUILD))?;
            let log = log_of(suite.name);
            let status = suite.run(&cluster, &log)?;
            let text = fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
            report.add(suite.clients, &text, status.success()).with_context(|| format!("see {}", log.display()))
        });
    }
    eprint!("{}", report.table());
}

fn log_of(suite: &str) -> PathBuf {
    root().join(BUILD).join(format!("{suite}.log"))
}

/// Runs a command with its output in a log file.
fn logged(command: &mut Command, log: &Path) -> Result<std::process::ExitStatus> {
    let failed = || format!("write {}", log.display());
    let output = fs::File::options().create(true).append(true).open(log).with_context(failed)?;
    let errors = output.try_clone().with_context(failed)?;
    let status = command.stdin(Stdio::null()).stdout(output).stderr(errors).status();
    status.with_context(|| format!("start {command:?}"))
}

/// Runs a command of an installation, which must succeed.
fn install(command: &mut Command, log: &Path) -> Result<()> {
    let status = logged(command, log)?;
    if !status.success() {
        bail!("{command:?} ended with {status}: see {}", log.display());
    }
    Ok(())
}
