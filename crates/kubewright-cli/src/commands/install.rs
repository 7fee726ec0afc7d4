//! `kubewright install` and `kubewright uninstall`: the definitions of the operator's kinds.

use std::path::Path;

use anyhow::{Context, Result};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_manifests::installer::rendered;
use serde_json::Value;

use crate::{
    project::project_folder,
    remote::{self, Connection, Options, Patience, Plan},
    render::render,
    shell::Shell,
};

/// What is rendered.
const DEFINITIONS: &str = "config/crd";

/// Where to install.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright install
  kubewright install --context kind-test --timeout 30s

It renders config/crd, by kustomize or kubectl, and applies it. Run kubewright manifests before, if a type has changed.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    patience: Patience,
}

/// Where to uninstall.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright uninstall --ignore-not-found

With a definition go all objects of its kind.")]
pub(crate) struct UninstallArguments {
    #[command(flatten)]
    connection: Connection,

    /// What is not there is no failure
    #[arg(long)]
    ignore_not_found: bool,

    #[command(flatten)]
    patience: Patience,
}

/// Installs the definitions, and waits until they are established.
pub(crate) async fn run(arguments: Arguments, clock: &SharedClock, shell: &Shell) -> Result<()> {
    let objects = objects(&project_folder()?)?;
    let remote = arguments.connection.connect().await?;
    shell.status("Installing", format!("to {remote}"));
    let wait = arguments.patience.begin(clock, shell);
    Plan::of(&remote, &objects, &arguments.options).await?.write(|_| true, &wait, shell).await?;
    shell.status("Finished", "the definitions are established");
    Ok(())
}

/// Deletes the definitions, and waits until they are gone.
pub(crate) async fn uninstall(arguments: UninstallArguments, clock: &SharedClock, shell: &Shell) -> Result<()> {
    let objects = objects(&project_folder()?)?;
    let remote = arguments.connection.connect().await?;
    shell.status("Uninstalling", format!("from {remote}"));
    let wait = arguments.patience.begin(clock, shell);
    remote::delete(&remote, &objects, arguments.ignore_not_found, &wait, shell).await?;
    shell.status("Finished", "the definitions are gone");
    Ok(())
}

fn objects(folder: &Path) -> Result<Vec<Value>> {
    rendered(&render(&folder.join(DEFINITIONS))?).context("understand what was rendered")
}
