//! `kubewright cluster`: runs an embedded cluster alone, for kubectl, for operators that are started by hand, and for
//! one command.

use std::{ffi::OsString, process::ExitCode};

use anyhow::{Context, Result};
use kubewright_apimachinery::clock::SharedClock;

use crate::{
    child::{Forwarder, exit_code},
    cluster::{ClusterOptions, Signals},
    shell::Shell,
};

/// The default name of the context.
const CONTEXT: &str = "kubewright";

/// Arguments of `kubewright cluster`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Start a cluster on a free port, with a kubeconfig in a temporary directory
  kubewright cluster

  # Run the tests of a program in any language on a cluster of their own
  kubewright cluster --wait -- pytest
  kubewright cluster --wait -- sh -c 'kubectl apply -f crds && npm test'

  # Start a cluster that kubectl, k9s and others use without further settings
  kubewright cluster --merge

  # Run tests that were written for envtest, which has neither controllers nor nodes
  kubewright cluster --api-only -- go test ./...

  # Run an operator's own manifests with its program in place of its image
  kubewright cluster --image example.com/operator=target/debug/operator

  # Leave out the controllers that a program brings itself
  kubewright cluster --controllers=-deployment-controller,-replicaset-controller

  # Log who asks for what, for example to see what an operator does
  kubewright cluster --audit-log-path ./audit.log

  # Keep the cluster: the next one with the same directory continues where this one ended
  kubewright cluster --data-dir ./cluster

  # Start a cluster on a fixed port, and use it from another shell
  kubewright cluster --listen 127.0.0.1:6443 --kubeconfig ./kubeconfig
  KUBECONFIG=./kubeconfig kubectl get pods --all-namespaces

Without COMMAND, the command prints one line when the cluster is ready, and runs until Ctrl-C or SIGTERM. With COMMAND, it sets KUBECONFIG for
it, forwards signals to it, and ends with its exit code (128 plus the number of the signal that killed it, 127 if it doesn't exist). The cluster is
kept in memory: when the command ends, its objects, pods, ports and files are gone.

With --data-dir, objects, certificates, tokens, the port and persistent volumes are kept in a directory, and kubeconfigs stay valid. A write that was
answered survives that the command is killed; a power failure can lose the last second, except with --fsync. Containers are restarted by the restart
policies of their pods, as after a restart of a machine.

With --merge, the context is removed from the kubeconfig at the end, and the current context is restored unless it was changed meanwhile. If the
command is killed, the next one with --merge removes the context. Comments in the file are restored unless another program changes the file.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: ClusterOptions,

    /// Wait until the cluster is complete: the node is ready, and the default service account exists
    #[arg(long)]
    wait: bool,

    /// Command to run when the cluster is ready, with its arguments; the cluster ends with it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs a cluster until a signal arrives or the command has ended. Returns the exit code.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<ExitCode> {
    let Arguments { cluster, wait, command } = arguments;
    cluster.log()?;
    if !command.is_empty() {
        return run_command(&cluster, &command, &clock, shell).await;
    }
    let mut signals = Signals::listen()?;
    let running = cluster.start(&clock, CONTEXT, None, shell).await?;
    if wait {
        tokio::select! {
            ready = running.wait_until_ready() => ready?,
            () = signals.recv() => {
                running.shutdown(shell).await;
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    shell.result(&running.ready_line(&clock));
    signals.recv().await;
    running.shutdown(shell).await;
    Ok(ExitCode::SUCCESS)
}

/// Runs a command beside a cluster.
async fn run_command(
    cluster: &ClusterOptions,
    command: &[OsString],
    clock: &SharedClock,
    shell: &Shell,
) -> Result<ExitCode> {
    let mut signals = Forwarder::listen()?;
    let running = cluster.start(clock, CONTEXT, None, shell).await?;
    let ready = tokio::select! {
        ready = running.wait_until_ready() => ready.map(|()| None),
        signal = signals.recv() => Ok(Some(signal)),
    };
    let result = match ready {
        Ok(None) => {
            // Standard output belongs to the command.
            let took = clock.monotonic().as_millis();
            shell.detail("Ready", format!("in {took} ms on https://{}", running.address()));
            let ended = signals.run(command, running.kubeconfig()).await;
            let code = exit_code(&ended);
            let name = command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
            if let Err(error) = ended.with_context(|| format!("run {name}")) {
                shell.error(&error);
            }
            Ok(ExitCode::from(code))
        }
        Ok(Some(signal)) => Ok(ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(1))),
        Err(error) => Err(error),
    };
    running.shutdown(shell).await;
    result
}
