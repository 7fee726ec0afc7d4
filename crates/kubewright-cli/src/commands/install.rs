//! `kubewright install` and `kubewright uninstall`: create and delete the CustomResourceDefinitions of the operator.

use std::path::Path;

use anyhow::{Context, Result};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_manifests::installer::rendered;
use serde_json::Value;

use crate::{
    project::project_folder,
    remote::{self, ApplyOptions, Connection, Plan, WaitOptions},
    render::render,
    shell::Shell,
};

/// The directory to render.
const DEFINITIONS: &str = "config/crd";

/// Arguments of `kubewright install`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Install into the cluster of the current context
  kubewright install

  # Choose the context, and wait for up to 30 seconds
  kubewright install --context kind-test --timeout 30s

The command renders config/crd with kustomize or kubectl, applies it, and waits until the definitions are established. Run kubewright manifests
first if a type has changed.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    options: ApplyOptions,

    #[command(flatten)]
    wait: WaitOptions,
}

/// Arguments of `kubewright uninstall`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Delete the CustomResourceDefinitions and all objects of their kinds
  kubewright uninstall

  # Do not fail if they are already gone
  kubewright uninstall --ignore-not-found")]
pub(crate) struct UninstallArguments {
    #[command(flatten)]
    connection: Connection,

    /// Ignore missing resources
    #[arg(long)]
    ignore_not_found: bool,

    #[command(flatten)]
    wait: WaitOptions,
}

/// Installs the definitions, and waits until they are established.
pub(crate) async fn run(arguments: Arguments, clock: &SharedClock, shell: &Shell) -> Result<()> {
    let objects = objects(&project_folder()?)?;
    let remote = arguments.connection.connect().await?;
    shell.status("Installing", format!("to {remote}"));
    let wait = arguments.wait.start(clock, shell);
    Plan::new(&remote, &objects, &arguments.options).await?.write(|_| true, &wait, shell).await?;
    shell.status("Finished", "the definitions are established");
    Ok(())
}

/// Deletes the definitions, and waits until they are gone.
pub(crate) async fn uninstall(arguments: UninstallArguments, clock: &SharedClock, shell: &Shell) -> Result<()> {
    let objects = objects(&project_folder()?)?;
    let remote = arguments.connection.connect().await?;
    shell.status("Uninstalling", format!("from {remote}"));
    let wait = arguments.wait.start(clock, shell);
    remote::delete(&remote, &objects, arguments.ignore_not_found, &wait, shell).await?;
    shell.status("Finished", "the definitions are deleted");
    Ok(())
}

fn objects(folder: &Path) -> Result<Vec<Value>> {
    rendered(&render(&folder.join(DEFINITIONS))?).with_context(|| format!("parse the rendered {DEFINITIONS}"))
}
