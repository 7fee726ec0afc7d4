//! `kubewright run`: runs the operator on this machine against the cluster of the current context.

use std::{os::unix::process::CommandExt, process::Command};

use anyhow::{Error, Result};
use kubewright_apimachinery::description::Description;
use kubewright_scaffold::write::Folder;

use super::manifests;
use crate::{
    operator::{self, OperatorArguments, Package},
    project::current_folder,
    remote::{Connection, Remote, missing_definitions},
    shell::Shell,
};

/// The environment variable that enables or disables the webhooks of an operator.
const ENABLE_WEBHOOKS: &str = "ENABLE_WEBHOOKS";

/// Arguments of `kubewright run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Run the operator against the current context
  kubewright install && kubewright run

  # Choose the context, and pass a flag to the operator
  kubewright run --context kind-test -- --log-level debug

  # Serve webhooks too, to a cluster on this machine
  ENABLE_WEBHOOKS=true kubewright run

The operator is built if it is not up to date. It runs with the permissions of the context's user. Webhooks are off by default, since most
clusters cannot reach this machine. Probes and traces are served on a free port, which is printed.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,

    /// Binary target of the operator, if the package has several
    #[arg(long, value_name = "NAME")]
    bin: Option<String>,

    /// Arguments for the operator; free ports are chosen for its probes and webhooks unless given here
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

/// Replaces this process with the operator. Only returns if that fails.
pub(crate) async fn run(arguments: Arguments, shell: &Shell) -> Result<()> {
    let package = Package::find(&current_folder()?, arguments.bin.as_deref())?;
    let program = operator::build(&package, shell)?;
    let description = operator::describe(&program).await?;
    warn_of_drift(&description, &Folder::new(&package.folder), shell)?;
    let remote = arguments.connection.connect().await?;
    warn_of_missing(&description, &remote, shell).await?;
    shell.status("Running", format!("{} against {remote}", package.program));

    let mut command = Command::new(&program);
    if let Some(kubeconfig) = &arguments.connection.kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    if let Some(context) = &arguments.connection.context {
        command.arg("--context").arg(context);
    }
    let enabled = std::env::var_os(ENABLE_WEBHOOKS);
    if enabled.is_none() {
        command.env(ENABLE_WEBHOOKS, "false");
    }
    let has_webhooks = description.ports.iter().any(|port| port.name == "webhook");
    // Only a cluster on this machine can use a URL on this machine.
    let serves_webhooks = has_webhooks && enabled.is_some_and(|value| value == "true") && remote.is_local();
    let operator = OperatorArguments::new(arguments.arguments)?;
    if let Some(url) = operator.probe_url() {
        shell.status("Serving", format!("probes and traces at {url}"));
    }
    command.args(operator.all(serves_webhooks));
    Err(Error::new(command.exec()).context(format!("start {}", program.display())))
}

/// Warns if the manifests on disk differ from the operator: it runs according to its code, but the manifests are what
/// is applied later.
fn warn_of_drift(description: &Description, folder: &Folder, shell: &Shell) -> Result<()> {
    let (_, changes) = manifests::plan(description, folder, None)?;
    if !changes.is_empty() {
        let files: Vec<_> = changes.iter().map(|change| change.path.as_str()).collect();
        shell.warning(&format!(
            "the manifests do not match the operator: run kubewright manifests to update {}",
            files.join(", ")
        ));
    }
    Ok(())
}

/// Warns about missing CustomResourceDefinitions, since the operator would wait for them.
async fn warn_of_missing(description: &Description, remote: &Remote, shell: &Shell) -> Result<()> {
    let definitions = description.kinds.iter().filter_map(|kind| kind.versions.first());
    let names: Vec<_> = definitions.filter_map(|definition| definition["metadata"]["name"].as_str()).collect();
    let missing = missing_definitions(remote, &names).await?;
    if !missing.is_empty() {
        let missing = missing.join(", ");
        shell.warning(&format!("CustomResourceDefinitions missing in {remote}: {missing}; run kubewright install"));
    }
    Ok(())
}
