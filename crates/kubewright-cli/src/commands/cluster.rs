//! `kubewright cluster`: the embedded cluster alone, for kubectl and operators run by hand.

use anyhow::Result;
use kubewright_apimachinery::clock::SharedClock;

use crate::{
    cluster::{Options, Signals},
    shell::Shell,
};

/// How the cluster is to be.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright cluster
  kubewright cluster --listen 127.0.0.1:6443 --kubeconfig ./kubeconfig
  KUBECONFIG=./kubeconfig kubectl get pods --all-namespaces

Prints one line when it is ready and runs until Ctrl-C or SIGTERM; then pods, ports and files are gone.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: Options,
}

/// Runs a cluster until a signal comes.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<()> {
    arguments.cluster.log()?;
    let mut signals = Signals::listen()?;
    let running = arguments.cluster.start(&clock, |kubeconfig| kubeconfig).await?;
    shell.result(&running.line(&clock));
    signals.come().await;
    running.shutdown().await;
    Ok(())
}
