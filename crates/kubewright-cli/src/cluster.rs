//! An embedded cluster in this process, for commands that keep one running until a signal arrives.

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

// Not a doc comment: clap would show it as the help of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterOptions {
    /// Loopback address to serve the API on; port 0 takes a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0", value_parser = loopback)]
    listen: SocketAddr,

    /// Path of the kubeconfig to write; it is removed at exit [default: chosen by the command, and printed]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// How to run pods
    #[arg(long, value_enum, default_value_t = PodMode::Run)]
    pods: PodMode,

    /// Log filter for standard error, such as info or kubewright_cluster=debug
    #[arg(long, value_name = "FILTER", default_value = "warn", env = "KUBEWRIGHT_LOG")]
    log: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PodMode {
    /// Each container is a process of this machine, without isolation
    Run,
    /// Pods become Running without a process
    Simulate,
}

/// Parses a loopback address; `localhost` is 127.0.0.1.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address = numeric.as_deref().unwrap_or(text).parse::<SocketAddr>();
    match address {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(_) => {
            Err("the kubeconfig grants full access, so the cluster serves loopback addresses only: use 127.0.0.1"
                .into())
        }
        Err(_) => Err("use an address and a port, such as 127.0.0.1:6443, or 127.0.0.1:0 for any free port".into()),
    }
}

/// A running cluster that serves its API.
pub(crate) struct Running {
    cluster: Cluster,
    kubeconfig: Kubeconfig,
    address: SocketAddr,
}

impl ClusterOptions {
    /// Sets up logging.
    pub(crate) fn log(&self) -> Result<()> {
        let filter = self.log.parse::<Targets>().with_context(|| format!("invalid --log {}", self.log))?;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        tracing_subscriber::registry().with(filter).with(lines.with_ansi(std::io::stderr().is_terminal())).init();
        Ok(())
    }

    /// Starts a cluster. `extend` receives its kubeconfig, and returns the one to write.
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

    /// Returns the path of the kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        self.kubeconfig.path()
    }

    /// Returns the line that reports that the cluster is ready.
    pub(crate) fn ready_line(&self, clock: &SharedClock) -> String {
        format!(
            "cluster ready in {} ms on https://{}, export KUBECONFIG={}",
            clock.monotonic().as_millis(),
            self.address,
            self.kubeconfig.path().display()
        )
    }

    /// Stops the cluster, and removes its pods, ports and files.
    pub(crate) async fn shutdown(self) {
        // The kubeconfig is removed first, so that it never contains an address at which nothing answers.
        drop(self.kubeconfig);
        self.cluster.shutdown().await;
    }
}

/// The signals that stop a command: SIGTERM, SIGINT and SIGHUP.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    ignores_hang_up: bool,
}

impl Signals {
    /// Installs the handlers. Must be called before anything is started that a signal has to stop.
    pub(crate) fn listen() -> Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let ignores_hang_up = ignores_hang_up();
        let hang_up = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
        Ok(Self { terminate, interrupt, hang_up, ignores_hang_up })
    }

    /// Completes when one of the signals arrives.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            // The terminal was closed.
            _ = self.hang_up.recv(), if !self.ignores_hang_up => {}
        }
    }
}

/// Returns whether this process was started to outlive its terminal, for example by `nohup`. Only detected on Linux.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
