//! `kubewright dev`: runs an operator beside an embedded cluster, and rebuilds and restarts it when its sources change.
//!
//! While the new operator is built, and also if the build fails, the old one keeps running. After a build the new
//! program describes itself, its CustomResourceDefinitions are installed, the old operator is stopped, and the new one
//! is started.

mod debounce;
mod install;
mod process;
mod readiness;
mod watch;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, bail};
use futures::future::{BoxFuture, OptionFuture};
use kubewright_apimachinery::clock::SharedClock;
use serde_json::Value;
use tokio::{io::AsyncReadExt, task::JoinHandle, time::sleep};

use self::{debounce::Debounce, install::InstalledCrds, process::ProcessGroup, watch::Watcher};
use crate::{
    cluster::Signals,
    operator::{self, OperatorArguments, Package},
    remote::{ApplyOptions, Plan, Remote, WaitOptions},
    shell::Shell,
};

/// The timeout for the API server to serve an installed kind.
const SERVED_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout for an operator to stop, which is longer than the grace period of its reconciles.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

/// The project, and the cluster that its operator runs against.
pub(crate) struct Project<'a> {
    pub(crate) package: &'a Package,
    /// The embedded cluster.
    pub(crate) remote: Remote,
    /// The kubeconfig file of that cluster, for the operator.
    pub(crate) kubeconfig: &'a Path,
    pub(crate) arguments: &'a OperatorArguments,
    /// Whether the samples are applied when the operator first reconciles.
    pub(crate) samples: bool,
    pub(crate) clock: SharedClock,
    pub(crate) shell: &'a Shell,
}

/// The state of the loop.
struct Session<'a> {
    project: Project<'a>,
    operator: Option<Operator>,
    build: Option<Build>,
    definitions: InstalledCrds,
    /// Whether an operator has already reconciled.
    has_reconciled: bool,
}

/// A running operator.
struct Operator {
    group: ProcessGroup,
    /// Completes when the operator reconciles.
    reconciling: Option<BoxFuture<'static, ()>>,
    times: RestartTimes,
    /// The modification time of the program.
    modified: Option<SystemTime>,
}

/// A running build.
struct Build {
    group: ProcessGroup,
    output: JoinHandle<std::io::Result<Vec<u8>>>,
    saved: Duration,
}

/// The times of a restart, on the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct RestartTimes {
    saved: Duration,
    built: Duration,
}

impl Project<'_> {
    /// Runs until a signal arrives, and stops all processes before it returns.
    pub(crate) async fn develop(self, signals: &mut Signals) -> Result<()> {
        let mut watcher = Watcher::start(self.package)?;
        let definitions = InstalledCrds::default();
        let mut session = Session { project: self, operator: None, build: None, definitions, has_reconciled: false };
        let result = tokio::select! {
            result = session.run(&mut watcher) => result,
            () = signals.recv() => Ok(()),
        };
        session.build = None;
        if let Some(operator) = &mut session.operator {
            tokio::select! {
                _ = operator.group.stop(STOP_TIMEOUT) => {}
                // A second signal ends the wait. Dropping the session kills the operator.
                () = signals.recv() => {}
            }
        }
        result
    }

    /// Applies objects, and takes over fields that other managers own. If one object is invalid, none is applied.
    async fn apply(&self, objects: &[Value]) -> Result<()> {
        let wait = WaitOptions::new(SERVED_TIMEOUT).start(&self.clock, self.shell);
        Plan::new(&self.remote, objects, &ApplyOptions::forced()).await?.write(|_| true, &wait, self.shell).await
    }

    /// Prints how to apply the samples, unless the cluster already has objects of the operator's kinds.
    async fn suggest_samples(&self, definitions: &InstalledCrds) -> Result<()> {
        let folder = &self.package.folder;
        let Some(target) = install::samples_target(folder) else { return Ok(()) };
        if definitions.has_objects(&self.remote.client).await? {
            return Ok(());
        }
        let kubeconfig = self.kubeconfig.strip_prefix(folder).unwrap_or(self.kubeconfig);
        let command = format!("kubectl --kubeconfig {} apply {target}", kubeconfig.display());
        self.shell.status("Next", format!("apply a sample: {command} (or start with --samples)"));
        Ok(())
    }
}

impl Session<'_> {
    /// Runs the loop. Only returns if the session cannot continue.
    async fn run(&mut self, watcher: &mut Watcher) -> Result<()> {
        let mut changes = Debounce::default();
        let clock = self.project.clock.clone();
        match operator::up_to_date(self.project.package) {
            Some(program) => {
                self.restart(&program, RestartTimes { saved: clock.monotonic(), built: clock.monotonic() }).await
            }
            None => self.build = Some(Build::start(&self.project, clock.monotonic())?),
        }
        loop {
            let due = changes.due().filter(|_| self.build.is_none());
            let pause = OptionFuture::from(due.map(|due| sleep(due.saturating_sub(clock.monotonic()))));
            let built = OptionFuture::from(self.build.as_mut().map(|build| build.finished(self.project.package)));
            let (exited, reconciling) = match &mut self.operator {
                Some(Operator { group, reconciling, .. }) => (Some(group.exited()), reconciling.as_mut()),
                None => (None, None),
            };
            let (exited, reconciling) = (OptionFuture::from(exited), OptionFuture::from(reconciling));
            tokio::select! {
                () = watcher.changed() => changes.note(clock.monotonic()),
                Some(()) = pause => {
                    let saved = changes.take().unwrap_or_default();
                    self.build = Some(Build::start(&self.project, saved)?);
                }
                Some(result) = built => self.built(result, watcher).await?,
                Some(()) = reconciling => self.reconciling().await,
                Some(status) = exited => self.exited(status?),
            }
        }
    }

    /// Handles the end of a build.
    async fn built(&mut self, result: Result<PathBuf>, watcher: &mut Watcher) -> Result<()> {
        let saved = self.build.take().map(|build| build.saved).unwrap_or_default();
        watcher.follow(self.project.package)?;
        let program = match result {
            Ok(program) => program,
            Err(error) => {
                self.report(&error);
                return Ok(());
            }
        };
        let Project { package, clock, shell, .. } = &self.project;
        let is_running = |operator: &Operator| operator.modified.is_some() && operator.modified == modified(&program);
        if self.operator.as_ref().is_some_and(is_running) {
            shell.status("Unchanged", &package.program);
            return Ok(());
        }
        let built = clock.monotonic();
        self.restart(&program, RestartTimes { saved, built }).await;
        Ok(())
    }

    /// Replaces the running operator, or reports the reason if it cannot be replaced.
    async fn restart(&mut self, program: &Path, times: RestartTimes) {
        if let Err(error) = self.replace(program, times).await {
            self.report(&error);
        }
    }

    /// Replaces the running operator, if there is one.
    async fn replace(&mut self, program: &Path, times: RestartTimes) -> Result<()> {
        let Project { package, kubeconfig, arguments, shell, .. } = &self.project;
        let description = operator::describe(program).await?;
        let changed = self.definitions.changed(&description)?;
        self.project.apply(&changed).await?;
        self.definitions.note(changed);
        if let Some(old) = &mut self.operator
            && !old.group.stop(STOP_TIMEOUT).await
        {
            let limit = STOP_TIMEOUT.as_secs();
            shell.warning(&format!("{} did not exit within {limit}s and was killed", package.program));
        }
        self.operator = None;
        let has_webhooks = description.ports.iter().any(|port| port.name == "webhook");
        let mut command = Command::new(program);
        command.args(arguments.all(has_webhooks)).current_dir(&package.folder).stdin(Stdio::null());
        command.env("KUBECONFIG", kubeconfig).env_remove("KUBERNETES_SERVICE_HOST");
        let group = ProcessGroup::start(command).with_context(|| format!("start {}", program.display()))?;
        let reconciling = arguments.probe_url().map(readiness::reconciling);
        if reconciling.is_none() {
            shell.status("Started", &package.program);
        }
        self.operator = Some(Operator { group, reconciling, times, modified: modified(program) });
        Ok(())
    }

    /// Reports that the operator reconciles. The first time, it also applies or suggests the samples.
    async fn reconciling(&mut self) {
        let Some(operator) = &mut self.operator else { return };
        operator.reconciling = None;
        let Project { package, clock, shell, .. } = &self.project;
        let RestartTimes { saved, built } = operator.times;
        let (building, starting) = (built.saturating_sub(saved), clock.monotonic().saturating_sub(built));
        shell.status(
            "Running",
            format!(
                "{}: built in {:.2}s, reconciling {:.2}s later",
                package.program,
                building.as_secs_f64(),
                starting.as_secs_f64()
            ),
        );
        if std::mem::replace(&mut self.has_reconciled, true) {
            return;
        }
        let result = match self.project.samples {
            true => self.apply_samples().await,
            false => self.project.suggest_samples(&self.definitions).await,
        };
        if let Err(error) = result {
            shell.warning(&format!("{error:#}"));
        }
    }

    async fn apply_samples(&self) -> Result<()> {
        self.project.apply(&install::samples(&self.project.package.folder)?).await
    }

    fn exited(&mut self, status: ExitStatus) {
        self.operator = None;
        let program = &self.project.package.program;
        self.project.shell.warning(&format!("{program} exited ({status}); it restarts when a file changes"));
    }

    /// Reports an error that the next change may fix.
    fn report(&self, error: &anyhow::Error) {
        self.project.shell.error(error);
        let state =
            if self.operator.is_some() { "the previous operator is still running" } else { "nothing is running" };
        self.project.shell.status("Waiting", format!("for a change; {state}"));
    }
}

fn modified(program: &Path) -> Option<SystemTime> {
    std::fs::metadata(program).and_then(|metadata| metadata.modified()).ok()
}

impl Build {
    fn start(project: &Project<'_>, saved: Duration) -> Result<Self> {
        let mut command = operator::cargo_build(project.package);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut group = ProcessGroup::start(command).context("start cargo")?;
        let stdout = group.stdout();
        let output = tokio::spawn(async move {
            let mut messages = Vec::new();
            if let Some(mut stdout) = stdout {
                stdout.read_to_end(&mut messages).await?;
            }
            Ok(messages)
        });
        Ok(Self { group, output, saved })
    }

    /// Waits for the build to finish, and returns the path of the program. Cancel-safe.
    async fn finished(&mut self, package: &Package) -> Result<PathBuf> {
        let status = self.group.exited().await.context("wait for cargo")?;
        let messages = (&mut self.output).await.context("read the output of cargo")?;
        let messages = messages.context("read the output of cargo")?;
        if !status.success() {
            bail!("{} does not compile: see the errors above", package.program);
        }
        operator::built_program(package, &messages)
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        self.output.abort();
    }
}
