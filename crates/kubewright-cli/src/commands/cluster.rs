//! `kubewright cluster`: runs an embedded cluster alone, for kubectl and for operators that are started by hand.

use anyhow::Result;
use kubewright_apimachinery::clock::SharedClock;

use crate::{
    cluster::{ClusterOptions, Signals},
    shell::Shell,
};

/// Arguments of `kubewright cluster`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Start a cluster on a free port, with a kubeconfig in a temporary directory
  kubewright cluster

  # Start a cluster on a fixed port, and use it from another shell
  kubewright cluster --listen 127.0.0.1:6443 --kubeconfig ./kubeconfig
  KUBECONFIG=./kubeconfig kubectl get pods --all-namespaces

The command prints one line when the cluster is ready, and runs until Ctrl-C or SIGTERM. The cluster is kept in memory: when the command ends,
its objects, pods, ports and files are gone.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Runs a cluster until a signal arrives.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<()> {
    arguments.cluster.log()?;
    let mut signals = Signals::listen()?;
    let running = arguments.cluster.start(&clock, |kubeconfig| kubeconfig).await?;
    shell.result(&running.ready_line(&clock));
    signals.recv().await;
    running.shutdown().await;
    Ok(())
}
