//! The embedded cluster in this process, for commands that keep one until a signal comes.

use std::{
    io::IsTerminal,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{Cluster, Pods};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::kubeconfig::Kubeconfig;

/// Where to listen and what to do with pods.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The address of this machine to serve on; port 0 takes any free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0", value_parser = loopback)]
    listen: SocketAddr,

    /// Where to write the kubeconfig; by default in a folder of its own.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Run pods as processes of this machine, or only pretend to.
    #[arg(long, value_enum, default_value_t = PodMode::Run)]
    pods: PodMode,

    /// What to log to standard error, such as `info` or `kubewright_cluster=debug`.
    #[arg(long, value_name = "FILTER", default_value = "warn", env = "KUBEWRIGHT_LOG")]
    log: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PodMode {
    /// Every container is a process.
    Run,
    /// Pods become Running without a process.
    Simulate,
}

/// An address of this machine, `localhost` being one.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address = numeric.as_deref().unwrap_or(text).parse::<SocketAddr>();
    match address {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(_) => Err("the cluster's user may do everything, so it serves this machine only: use 127.0.0.1".into()),
        Err(_) => Err("use an address and a port, such as 127.0.0.1:6443, or 127.0.0.1:0 for any free port".into()),
    }
}

/// A cluster that others can reach.
pub(crate) struct Running {
    cluster: Cluster,
    kubeconfig: Kubeconfig,
    address: SocketAddr,
}

impl Options {
    /// Begins to log, as is asked for.
    pub(crate) fn log(&self) -> Result<()> {
        let filter = self.log.parse::<Targets>().with_context(|| format!("read --log {}", self.log))?;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        tracing_subscriber::registry().with(filter).with(lines.with_ansi(std::io::stderr().is_terminal())).init();
        Ok(())
    }

    /// Starts the cluster; `extend` adds to its kubeconfig.
    pub(crate) async fn start(&self, clock: &SharedClock, extend: impl FnOnce(String) -> String) -> Result<Running> {
        let pods = match self.pods {
            PodMode::Run => Pods::Run,
            PodMode::Simulate => Pods::Simulate,
        };
        let cluster = Cluster::builder().clock(clock.clone()).pods(pods).start().await.context("start the cluster")?;
        let listening = cluster
            .listen(self.listen)
            .await
            .with_context(|| format!("listen on {} (choose another address with --listen)", self.listen))?;
        let kubeconfig = Kubeconfig::write(self.kubeconfig.as_deref(), &extend(listening.kubeconfig()))?;
        Ok(Running { cluster, kubeconfig, address: listening.address() })
    }
}

impl Running {
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The way there for others.
    pub(crate) fn kubeconfig(&self) -> &Path {
        self.kubeconfig.path()
    }

    /// The line that says that it is there.
    pub(crate) fn line(&self, clock: &SharedClock) -> String {
        format!(
            "cluster ready in {} ms on https://{}, export KUBECONFIG={}",
            clock.monotonic().as_millis(),
            self.address,
            self.kubeconfig.path().display()
        )
    }

    /// Ends it, with its pods, ports and files.
    pub(crate) async fn shutdown(self) {
        // The file goes first: nobody should find an address at which nothing answers any more.
        drop(self.kubeconfig);
        self.cluster.shutdown().await;
    }
}

/// The signals that end a command.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    ignores_hang_up: bool,
}

impl Signals {
    /// From now on they come here. To be called before anything starts, so that no signal finds us half-dressed.
    pub(crate) fn listen() -> Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let ignores_hang_up = ignores_hang_up();
        let hang_up = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
        Ok(Self { terminate, interrupt, hang_up, ignores_hang_up })
    }

    /// Waits for one of them.
    pub(crate) async fn come(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            // The terminal was closed.
            _ = self.hang_up.recv(), if !self.ignores_hang_up => {}
        }
    }
}

/// Whether this process was started to outlive its terminal, as `nohup` does it. Only Linux tells.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
