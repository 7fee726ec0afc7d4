//! Processes under measurement: their start, their figures from /proc, and their end.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustix::process::{Pid, Signal, kill_process};

/// The clock ticks per second in /proc/PID/stat (`USER_HZ`). The same on every architecture that Kubewright is built
/// for.
const TICKS: f64 = 100.0;

/// A process that is killed on drop unless it has ended.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("run {command:?}: is it built?"))?;
        Ok(Self { child })
    }

    /// Returns the CPU time used so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        cpu_seconds(&self.file("stat"))
    }

    /// Returns the resident memory in MiB.
    pub(crate) fn resident_mebibytes(&self) -> Result<f64> {
        mebibytes(&self.file("status"), "VmRSS:")
    }

    /// Returns the peak resident memory in MiB.
    pub(crate) fn peak_mebibytes(&self) -> Result<f64> {
        mebibytes(&self.file("status"), "VmHWM:")
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.child.id())
    }

    /// Fails if the process has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait().context("look at the process")? {
            Some(status) => bail!("the process has ended with {status}"),
            None => Ok(()),
        }
    }

    /// Asks the process to end, and waits until it has.
    pub(crate) fn end(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("end the process")?;
        let status = self.child.wait().context("wait for the process")?;
        if !status.success() {
            bail!("the process ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the CPU time in a `stat` file of /proc, in seconds.
pub(crate) fn cpu_seconds(file: &str) -> Result<f64> {
    let stat = fs::read_to_string(file).context("read the process's times")?;
    // The second field is the program's name in parentheses, which may contain any character.
    let fields = stat.rsplit_once(')').context("the process's times are unreadable")?.1;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>().context("the process's times are unreadable")? / TICKS)
}

/// Returns a value from a `status` file of /proc, in MiB.
pub(crate) fn mebibytes(file: &str, field: &str) -> Result<f64> {
    let status = fs::read_to_string(file).with_context(|| format!("read {file}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    Ok(kilobytes.with_context(|| format!("{file} has no {field}"))? / 1024.0)
}

/// Starts `kubewright cluster` with these flags, and returns the process and the path of its kubeconfig.
pub(crate) fn cluster(program: &Path, flags: &[&str]) -> Result<(Process, String)> {
    let mut command = Command::new(program);
    command.args(["cluster", "--listen", "127.0.0.1:0"]).args(flags).stdout(Stdio::piped());
    with_kubeconfig(&mut command)
}

/// Starts a command whose first line names the kubeconfig of a cluster, and returns the process and that path. Its
/// standard output must be piped.
pub(crate) fn with_kubeconfig(command: &mut Command) -> Result<(Process, String)> {
    let mut process = Process::start(command)?;
    let mut line = String::new();
    let stdout = process.child.stdout.take().context("the command has no standard output")?;
    BufReader::new(stdout).read_line(&mut line).context("read the command's first line")?;
    let path = line.trim().rsplit_once("KUBECONFIG=").with_context(|| format!("no kubeconfig in {line:?}"))?.1;
    Ok((process, path.to_owned()))
}

/// Creates a client from a kubeconfig file.
pub(crate) async fn client(kubeconfig: &str) -> Result<Client> {
    let text = fs::read_to_string(kubeconfig).context("read the kubeconfig")?;
    Client::try_from(config(&text).await?).context("make a client")
}

/// Creates a client's configuration from the text of a kubeconfig.
pub(crate) async fn config(kubeconfig: &str) -> Result<Config> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).context("read the kubeconfig")?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.context("use the kubeconfig")
}

/// Waits until a process is idle, that is, has used no CPU time for this long.
pub(crate) async fn rest(process: &mut Process, quiet: Duration) -> Result<()> {
    const STEP: Duration = Duration::from_millis(250);
    let (mut before, mut rested) = (process.cpu_seconds()?, Duration::ZERO);
    while rested < quiet {
        tokio::time::sleep(STEP).await;
        process.check()?;
        let now = process.cpu_seconds()?;
        rested = if now > before { Duration::ZERO } else { rested + STEP };
        before = now;
    }
    Ok(())
}
