//! `kubewright run`: the operator on this machine, against the current context.

use std::{ffi::OsString, os::unix::process::CommandExt, process::Command};

use anyhow::{Error, Result};
use kubewright_apimachinery::description::Description;
use kubewright_scaffold::write::Folder;

use super::manifests;
use crate::{
    operator::{self, Package},
    project::current_folder,
    remote::{Connection, Remote, missing_definitions},
    shell::Shell,
};

/// The variable that turns an operator's webhooks off.
const WEBHOOKS: &str = "ENABLE_WEBHOOKS";

/// What to run, and against which cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright install && kubewright run
  kubewright run --context kind-test -- --log-level debug

The operator is built if need be. It has the rights of the context, and no webhooks, since the cluster can't reach this machine: kubewright
dev has them. ENABLE_WEBHOOKS=true turns them on all the same.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,

    /// The operator among the programs of the project
    #[arg(long, value_name = "NAME")]
    bin: Option<String>,

    /// Arguments of the operator
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Becomes the operator. It returns only if it can't.
pub(crate) async fn run(arguments: Arguments, shell: &Shell) -> Result<()> {
    let package = Package::find(&current_folder()?, arguments.bin.as_deref())?;
    let program = operator::build(&package, shell)?;
    let description = operator::ask(&program).await?;
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
    command.args(&arguments.arguments);
    if std::env::var_os(WEBHOOKS).is_none() {
        command.env(WEBHOOKS, "false");
    }
    Err(Error::new(command.exec()).context(format!("start {}", program.display())))
}

/// The operator runs by what it is, and what is applied later by what is written.
fn warn_of_drift(description: &Description, folder: &Folder, shell: &Shell) -> Result<()> {
    let (_, changes) = manifests::plan(description, folder, None)?;
    if !changes.is_empty() {
        let files: Vec<_> = changes.iter().map(|change| change.path.as_str()).collect();
        shell.warning(&format!(
            "the manifests are not what the operator describes: run kubewright manifests ({})",
            files.join(", ")
        ));
    }
    Ok(())
}

/// The operator waits for definitions that aren't there.
async fn warn_of_missing(description: &Description, remote: &Remote, shell: &Shell) -> Result<()> {
    let definitions = description.kinds.iter().filter_map(|kind| kind.versions.first());
    let names: Vec<_> = definitions.filter_map(|definition| definition["metadata"]["name"].as_str()).collect();
    let missing = missing_definitions(remote, &names).await?;
    if !missing.is_empty() {
        shell.warning(&format!("{remote} doesn't know {}: run kubewright install", missing.join(", ")));
    }
    Ok(())
}
