//! `kubewright dev`: runs the operator beside an embedded cluster, and restarts it when a file changes.

use anyhow::Result;
use kubewright_apimachinery::clock::SharedClock;

use crate::{
    cluster::{ClusterOptions, Signals},
    dev::Project,
    operator::{OperatorArguments, Package},
    project::current_folder,
    remote::Remote,
    shell::Shell,
};

/// Arguments of `kubewright dev`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Run the operator, and apply the objects in config/samples
  kubewright dev --samples

  # Serve the cluster on a fixed port, and pass a flag to the operator
  kubewright dev --listen 127.0.0.1:6443 -- --log-level debug

The command installs the CustomResourceDefinitions of the operator and runs it, with its webhooks, until Ctrl-C. When a file changes, the
operator is rebuilt while the old one runs, changed definitions are installed, and the new one takes over. If the build fails, the old one
keeps running. The KUBECONFIG in the first line of output works with kubectl and kubewright explain.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: ClusterOptions,

    /// Apply the objects in config/samples when the operator first reconciles
    #[arg(long)]
    samples: bool,

    /// Binary target of the operator, if the package has several
    #[arg(long, value_name = "NAME")]
    bin: Option<String>,

    /// Arguments for the operator; free ports are chosen for its probes and webhooks unless given here
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

/// Runs until a signal arrives.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<()> {
    let Arguments { mut cluster, samples, bin, arguments } = arguments;
    cluster.log()?;
    let mut signals = Signals::listen()?;
    let package = Package::find(&current_folder()?, bin.as_deref())?;
    // The path is the same each time, so that `KUBECONFIG` in a shell remains valid over restarts.
    let default = || package.target.join("kubewright").join(format!("{}.kubeconfig", package.program));
    cluster.kubeconfig.get_or_insert_with(default);
    let arguments = OperatorArguments::new(arguments)?;
    let context = format!("kubewright-{}", package.program);
    let running = cluster.start(&clock, &context, arguments.probe_url(), shell).await?;
    shell.result(&running.ready_line(&clock));
    let project = Project {
        package: &package,
        remote: Remote::new(running.cluster().client(), "the embedded cluster", running.kubeconfig().display()),
        kubeconfig: running.kubeconfig(),
        arguments: &arguments,
        samples,
        clock,
        shell,
    };
    let result = project.develop(&mut signals).await;
    running.shutdown(shell).await;
    result
}
