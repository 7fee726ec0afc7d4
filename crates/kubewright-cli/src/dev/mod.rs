//! The operator beside the embedded cluster: built, started, and built and started again when its sources change.
//!
//! The old one runs on while the new one is built, and if that can't be. Then the new one is asked what it brings, its definitions are
//! installed, and the old one is told to end; the new one starts when it has.

mod debounce;
mod flags;
mod install;
mod process;
mod watch;
mod working;

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

pub(crate) use self::flags::Flags;
use self::{debounce::Debounce, install::Definitions, process::Group, watch::Watcher};
use crate::{
    cluster::Signals,
    operator::{self, Package},
    remote::{Options, Patience, Plan, Remote},
    shell::Shell,
};

/// How long the API server may take until it serves a kind.
const SERVED: Duration = Duration::from_secs(30);

/// How long an operator may take to end: longer than the time that its reconciles get for that.
const PATIENCE: Duration = Duration::from_secs(40);

/// What is developed, and where.
pub(crate) struct Project<'a> {
    pub(crate) package: &'a Package,
    /// The embedded cluster.
    pub(crate) remote: Remote,
    /// The way there for the operator.
    pub(crate) kubeconfig: &'a Path,
    pub(crate) flags: &'a Flags,
    /// Whether its samples are applied once it works.
    pub(crate) samples: bool,
    pub(crate) clock: SharedClock,
    pub(crate) shell: &'a Shell,
}

/// What is under way.
struct Session<'a> {
    project: Project<'a>,
    operator: Option<Operator>,
    build: Option<Build>,
    definitions: Definitions,
    samples: bool,
}

/// The operator that runs.
struct Operator {
    group: Group,
    /// Ends when it works.
    working: Option<BoxFuture<'static, ()>>,
    times: Times,
    /// When its program was made.
    made: Option<SystemTime>,
}

/// A build that runs.
struct Build {
    group: Group,
    output: JoinHandle<std::io::Result<Vec<u8>>>,
    saved: Duration,
}

/// When things came to pass, by the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Times {
    saved: Duration,
    built: Duration,
}

impl Project<'_> {
    /// Develops until a signal comes; then nothing of it runs any more.
    pub(crate) async fn develop(self, signals: &mut Signals) -> Result<()> {
        let mut watcher = Watcher::start(self.package)?;
        let samples = self.samples;
        let mut session =
            Session { project: self, operator: None, build: None, definitions: Definitions::default(), samples };
        let result = tokio::select! {
            result = session.run(&mut watcher) => result,
            () = signals.come() => Ok(()),
        };
        session.build = None;
        if let Some(operator) = &mut session.operator {
            tokio::select! {
                _ = operator.group.stop(PATIENCE) => {}
                // Whoever asks again has waited enough: it is killed.
                () = signals.come() => {}
            }
        }
        result
    }

    /// Applies objects, whoever else has set their fields. What can't be applied changes nothing.
    async fn apply(&self, objects: &[Value]) -> Result<()> {
        let wait = Patience::of(SERVED).begin(&self.clock, self.shell);
        Plan::of(&self.remote, objects, &Options::forced()).await?.write(|_| true, &wait, self.shell).await
    }
}

impl Session<'_> {
    /// Never ends by itself, but for what can't be gone on with.
    async fn run(&mut self, watcher: &mut Watcher) -> Result<()> {
        let mut changes = Debounce::default();
        let clock = self.project.clock.clone();
        match operator::fresh(self.project.package) {
            Some(program) => {
                self.replace_or_say(&program, Times { saved: clock.monotonic(), built: clock.monotonic() }).await
            }
            None => self.build = Some(Build::start(&self.project, clock.monotonic())?),
        }
        loop {
            let due = changes.due().filter(|_| self.build.is_none());
            let pause = OptionFuture::from(due.map(|due| sleep(due.saturating_sub(clock.monotonic()))));
            let built = OptionFuture::from(self.build.as_mut().map(|build| build.finished(self.project.package)));
            let (ended, works) = match &mut self.operator {
                Some(Operator { group, working, .. }) => (Some(group.ended()), working.as_mut()),
                None => (None, None),
            };
            let (ended, works) = (OptionFuture::from(ended), OptionFuture::from(works));
            tokio::select! {
                () = watcher.changed() => changes.note(clock.monotonic()),
                Some(()) = pause => {
                    let saved = changes.take().unwrap_or_default();
                    self.build = Some(Build::start(&self.project, saved)?);
                }
                Some(result) = built => self.built(result, watcher).await?,
                Some(()) = works => self.works().await,
                Some(status) = ended => self.ended(status?),
            }
        }
    }

    /// A build has ended, one way or the other.
    async fn built(&mut self, result: Result<PathBuf>, watcher: &mut Watcher) -> Result<()> {
        let saved = self.build.take().map(|build| build.saved).unwrap_or_default();
        watcher.follow(self.project.package)?;
        let program = match result {
            Ok(program) => program,
            Err(error) => {
                self.says(&error);
                return Ok(());
            }
        };
        let Project { package, clock, shell, .. } = &self.project;
        if self.operator.as_ref().is_some_and(|operator| operator.made.is_some() && operator.made == made(&program)) {
            shell.status("Unchanged", &package.program);
            return Ok(());
        }
        let built = clock.monotonic();
        self.replace_or_say(&program, Times { saved, built }).await;
        Ok(())
    }

    async fn replace_or_say(&mut self, program: &Path, times: Times) {
        if let Err(error) = self.replace(program, times).await {
            self.says(&error);
        }
    }

    /// Puts a new operator in the place of the old one, if there is one.
    async fn replace(&mut self, program: &Path, times: Times) -> Result<()> {
        let Project { package, kubeconfig, flags, shell, .. } = &self.project;
        let description = operator::ask(program).await?;
        let changed = self.definitions.changed(&description)?;
        self.project.apply(&changed).await?;
        self.definitions.note(changed);
        if let Some(old) = &mut self.operator
            && !old.group.stop(PATIENCE).await
        {
            shell.warning(&format!("{} did not end within {} s, and was killed", package.program, PATIENCE.as_secs()));
        }
        self.operator = None;
        let has_webhooks = description.ports.iter().any(|port| port.name == "webhook");
        let mut command = Command::new(program);
        command.args(flags.all(has_webhooks)).current_dir(&package.folder).stdin(Stdio::null());
        command.env("KUBECONFIG", kubeconfig).env_remove("KUBERNETES_SERVICE_HOST");
        let group = Group::start(command).with_context(|| format!("start {}", program.display()))?;
        let working = flags.probes().map(working::working);
        if working.is_none() {
            shell.status("Started", &package.program);
        }
        self.operator = Some(Operator { group, working, times, made: made(program) });
        Ok(())
    }

    /// The operator reconciles.
    async fn works(&mut self) {
        let Some(operator) = &mut self.operator else { return };
        operator.working = None;
        let Project { package, clock, shell, .. } = &self.project;
        let Times { saved, built } = operator.times;
        let (building, starting) = (built.saturating_sub(saved), clock.monotonic().saturating_sub(built));
        shell.status(
            "Running",
            format!(
                "{}: built in {:.2} s, reconciling {:.2} s later",
                package.program,
                building.as_secs_f64(),
                starting.as_secs_f64()
            ),
        );
        if std::mem::take(&mut self.samples)
            && let Err(error) = self.samples().await
        {
            shell.warning(&format!("{error:#}"));
        }
    }

    async fn samples(&self) -> Result<()> {
        self.project.apply(&install::samples(&self.project.package.folder)?).await
    }

    fn ended(&mut self, status: ExitStatus) {
        self.operator = None;
        let program = &self.project.package.program;
        self.project.shell.warning(&format!("{program} has ended ({status}); it is started again when a file changes"));
    }

    fn says(&self, error: &anyhow::Error) {
        self.project.shell.error(error);
        let so = if self.operator.is_some() { "the one from before runs on" } else { "nothing runs" };
        self.project.shell.status("Waiting", format!("for a change; {so}"));
    }
}

fn made(program: &Path) -> Option<SystemTime> {
    std::fs::metadata(program).and_then(|metadata| metadata.modified()).ok()
}

impl Build {
    fn start(project: &Project<'_>, saved: Duration) -> Result<Self> {
        let mut command = operator::cargo_build(project.package);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut group = Group::start(command).context("start cargo")?;
        let stdout = group.stdout();
        let output = tokio::spawn(async move {
            let mut said = Vec::new();
            if let Some(mut stdout) = stdout {
                stdout.read_to_end(&mut said).await?;
            }
            Ok(said)
        });
        Ok(Self { group, output, saved })
    }

    /// Waits for its end: the program. It may be given up and called again.
    async fn finished(&mut self, package: &Package) -> Result<PathBuf> {
        let status = self.group.ended().await.context("wait for cargo")?;
        let said = (&mut self.output).await.context("hear cargo")?.context("hear cargo")?;
        if !status.success() {
            bail!("{} can't be built: see above", package.program);
        }
        operator::program_of(package, &said)
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        self.output.abort();
    }
}
