//! `kubewright cluster`: the embedded cluster alone, for kubectl and operators run by hand.

use std::{io::IsTerminal, net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{Cluster, Pods};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::{kubeconfig::Kubeconfig, shell::Shell};

/// Where to listen and what to do with pods.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright cluster
  kubewright cluster --listen 127.0.0.1:6443 --kubeconfig ./kubeconfig
  KUBECONFIG=./kubeconfig kubectl get pods --all-namespaces

Prints one line when it is ready and runs until Ctrl-C or SIGTERM; then pods, ports and files are gone.")]
pub(crate) struct Arguments {
    /// The address of this machine to serve on; port 0 takes any free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0", value_parser = loopback)]
    listen: SocketAddr,

    /// Where to write the kubeconfig; by default in a folder of its own.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

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

/// Whether this process was started to outlive its terminal, as `nohup` does it. Only Linux tells.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Runs a cluster until a signal comes.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<()> {
    let filter = EnvFilter::try_new(&arguments.log).with_context(|| format!("read --log {}", arguments.log))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // All are registered before anything starts, so that no signal finds us half-dressed.
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let ignores_hang_up = ignores_hang_up();
    let mut hang_up = signal(SignalKind::hangup()).context("listen for SIGHUP")?;

    let pods = match arguments.pods {
        PodMode::Run => Pods::Run,
        PodMode::Simulate => Pods::Simulate,
    };
    let cluster = Cluster::builder().clock(clock.clone()).pods(pods).start().await.context("start the cluster")?;
    let listening = cluster
        .listen(arguments.listen)
        .await
        .with_context(|| format!("listen on {} (choose another address with --listen)", arguments.listen))?;
    let kubeconfig = Kubeconfig::write(arguments.kubeconfig.as_deref(), &listening.kubeconfig())?;
    shell.result(&format!(
        "cluster ready in {} ms on https://{}, export KUBECONFIG={}",
        clock.monotonic().as_millis(),
        listening.address(),
        kubeconfig.path().display()
    ));

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        // The terminal was closed.
        _ = hang_up.recv(), if !ignores_hang_up => {}
    }
    // The file goes first: nobody should find an address at which nothing answers any more.
    drop(kubeconfig);
    cluster.shutdown().await;
    Ok(())
}
