//! `kubewright delete`: removes an API or webhooks from a project.

use anyhow::{Result, bail};
use clap::Subcommand;
use kubewright_scaffold::{
    delete::{Delete, Parts},
    plan::Plan,
};

use super::kind_name::KindName;
use crate::{
    project::{OpenProject, write},
    shell::Shell,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Remove an API: its types, its controller and its manifests
    Api(Api),
    /// Remove admission webhooks of a kind, or its conversion between versions
    Webhook(Webhook),
}

/// Arguments of `kubewright delete api`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Undo kubewright create api
  kubewright delete api --group batch --version v1 --kind CronJob

  # Also delete files that were edited
  kubewright delete api --group batch --version v1 --kind CronJob --force

Webhooks of the kind are removed first, with kubewright delete webhook. Edited files stay and are named; the lines that create api inserted
into other files are removed, also where those were edited elsewhere. Nothing is deleted from a cluster: see kubewright uninstall.")]
pub(crate) struct Api {
    #[command(flatten)]
    of: KindOptions,
}

/// Arguments of `kubewright delete webhook`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Remove all webhooks of a kind
  kubewright delete webhook --group batch --version v1 --kind CronJob

  # Remove its validation, and keep its defaulting
  kubewright delete webhook --group batch --version v1 --kind CronJob --programmatic-validation

Edited files stay and are named, unless --force is given. A file that contains several webhooks is edited while one of them is left.")]
pub(crate) struct Webhook {
    #[command(flatten)]
    of: KindOptions,

    /// Remove the defaulting webhook
    #[arg(long)]
    defaulting: bool,

    /// Remove the validating webhook
    #[arg(long)]
    programmatic_validation: bool,

    /// Remove the conversion of which this version is the hub
    #[arg(long)]
    conversion: bool,
}

// Not a doc comment: clap would show it as the help of the command.
#[derive(Debug, clap::Args)]
struct KindOptions {
    #[command(flatten)]
    name: KindName,

    /// Delete edited files too, and leave lines that cannot be found
    #[arg(long)]
    force: bool,

    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
}

/// Runs a subcommand.
pub(crate) fn run(command: Command, shell: &Shell) -> Result<()> {
    match command {
        Command::Api(Api { of }) => delete(of, Parts::Api, "the API", shell),
        Command::Webhook(Webhook { of, defaulting, programmatic_validation: validation, conversion }) => {
            delete(of, Parts::Webhooks { defaulting, validation, conversion }, "the webhooks of", shell)
        }
    }
}

fn delete(of: KindOptions, parts: Parts, what: &str, shell: &Shell) -> Result<()> {
    let opened = OpenProject::find()?;
    let KindOptions { name: KindName { group, version, kind }, force, yes } = of;
    // Other layouts are an error.
    opened.chain(&[])?;
    let mut delete = Delete::new(group, version, kind, parts);
    delete.force = force;
    let mut plan = Plan::new(opened.folder());
    let kept = delete.plan(&opened.project, &mut plan)?;
    let changes = plan.finish()?;
    if !yes && !shell.ask(&format!("Delete {what} {} in version {}", delete.kind, delete.version))? {
        bail!("nothing was deleted");
    }
    write(opened.folder(), shell, &changes)?;
    for path in &kept.edited {
        shell.warning(&format!("{path} was edited and stays: delete it yourself, or use --force next time"));
    }
    shell.status("Next", "remove what still uses it (cargo check names it), then run kubewright manifests");
    Ok(())
}
