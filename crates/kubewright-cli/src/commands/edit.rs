//! `kubewright edit`: what a project is, changed later.

use anyhow::Result;
use kubewright_scaffold::{
    command::{Edit, License, Step},
    plan::Plan,
};

use crate::{
    commands::init::owner,
    external::{Command, Plugins},
    project::Opened,
    shell::Shell,
};

/// What is to be otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright edit --multigroup
  kubewright edit --namespaced
  kubewright edit --namespaced=false
  kubewright edit --owner 'Jane Doe' --license 'MIT OR Apache-2.0'

With --multigroup new kinds are in folders by group; those that are there stay where they are. With --namespaced the operator watches
its own namespace, with rights there alone; webhooks and definitions of kinds stay those of the whole cluster.")]
pub(crate) struct Arguments {
    /// Keep kinds in folders by group.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    multigroup: Option<bool>,

    /// Watch the operator's own namespace alone, with rights there.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    namespaced: Option<bool>,

    /// The licence in the heads of new sources: apache2, copyright, none, or as SPDX says it.
    #[arg(long)]
    license: Option<License>,

    /// Whose new sources are.
    #[arg(long, value_parser = owner)]
    owner: Option<String>,

    #[command(flatten)]
    plugins: Plugins,
}

/// Changes it.
pub(crate) fn run(arguments: Arguments, shell: &Shell) -> Result<()> {
    let opened = Opened::find()?;
    let chain = opened.chain(&arguments.plugins.plugins)?;
    let mut edit = Edit::default();
    (edit.multigroup, edit.namespaced) = (arguments.multigroup, arguments.namespaced);
    edit.license = arguments.license.map(|license| license.as_str().to_owned());
    edit.owner = arguments.owner;
    let is_for_others = edit.is_empty() && chain.has_others();
    let step = Step::Edit(edit);
    let plan_edit = |plan: &mut Plan<'_>| {
        // What is said may be for the other plugins alone.
        if is_for_others {
            return Ok(());
        }
        Ok(step.carry_out(&opened.project, plan)?)
    };
    opened.scaffold(&chain, Command::Edit, shell, plan_edit)?;
    if arguments.namespaced.is_some_and(|namespaced| namespaced != opened.project.namespaced) {
        shell.status("Next", "have the rights written anew: kubewright manifests");
    }
    Ok(())
}
