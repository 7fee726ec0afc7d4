//! `kubewright dev`: the operator beside an embedded cluster, built and started again when a file changes.

use anyhow::Result;
use kubewright_apimachinery::clock::SharedClock;

use crate::{
    cluster::{Options, Signals},
    dev::{Flags, Project},
    operator::Package,
    project::current_folder,
    remote::Remote,
    shell::Shell,
};

/// What to run, and how the cluster is to be.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright dev
  kubewright dev --samples --listen 127.0.0.1:6443 -- --log-level debug

It installs the operator's definitions and runs it, webhooks included, until Ctrl-C. On a change it builds while the old
one runs, installs what has changed of the definitions, and lets the new one take over; after a build that failed the old
one runs on. kubectl and kubewright explain find all by the KUBECONFIG that is printed.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: Options,

    /// Apply the objects in config/samples once the operator works.
    #[arg(long)]
    samples: bool,

    /// The operator among the programs of the project.
    #[arg(long, value_name = "NAME")]
    bin: Option<String>,

    /// What to tell the operator; where it listens is added.
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

/// Develops until a signal comes.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<()> {
    let Arguments { mut cluster, samples, bin, arguments } = arguments;
    cluster.log()?;
    let mut signals = Signals::listen()?;
    let package = Package::find(&current_folder()?, bin.as_deref())?;
    // A place that stays, so that a shell which was told of it finds the next cluster, too.
    let usual = || package.target.join("kubewright").join(format!("{}.kubeconfig", package.program));
    cluster.kubeconfig.get_or_insert_with(usual);
    let flags = Flags::new(arguments)?;
    let running = cluster.start(&clock, |kubeconfig| flags.note(kubeconfig)).await?;
    shell.result(&running.line(&clock));
    let project = Project {
        package: &package,
        remote: Remote::new(running.cluster().client(), "the embedded cluster", running.kubeconfig().display()),
        kubeconfig: running.kubeconfig(),
        flags: &flags,
        samples,
        clock,
        shell,
    };
    let result = project.develop(&mut signals).await;
    running.shutdown().await;
    result
}
