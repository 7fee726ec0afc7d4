//! `kubewright edit`: changes the settings of a project.

use anyhow::Result;
use kubewright_scaffold::{
    command::{Edit, License, Step},
    external::Feature,
    plan::Plan,
    record,
};

use crate::{
    commands::init::owner,
    external::{Command, Plugins},
    project::OpenProject,
    shell::Shell,
};

/// Arguments of `kubewright edit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Keep the sources of each API group in a directory of its own
  kubewright edit --multigroup

  # Watch only the operator's own namespace, and then all namespaces again
  kubewright edit --namespaced
  kubewright edit --namespaced=false

  # Change the header of new source files
  kubewright edit --owner 'Jane Doe' --license 'MIT OR Apache-2.0'

  # Write dashboards for Grafana, also for the metrics that are listed in grafana/custom-metrics/config.yaml
  kubewright edit --plugins grafana

With --multigroup, sources of new kinds are created in directories by group; existing sources stay where they are. With --namespaced, the
operator watches only its own namespace, with permissions limited to it. CustomResourceDefinitions and webhooks still concern the whole
cluster.")]
pub(crate) struct Arguments {
    /// Keep the sources of each API group in a directory of its own
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    multigroup: Option<bool>,

    /// Watch only the operator's own namespace, with permissions limited to it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    namespaced: Option<bool>,

    /// Licence in the header of new files: apache2, copyright, none, or an SPDX expression
    #[arg(long)]
    license: Option<License>,

    /// Copyright holder of new files
    #[arg(long, value_parser = owner)]
    owner: Option<String>,

    #[command(flatten)]
    plugins: Plugins,
}

/// Changes the settings.
pub(crate) fn run(arguments: Arguments, shell: &Shell) -> Result<()> {
    let opened = OpenProject::find()?;
    let chain = opened.chain(&arguments.plugins.plugins)?;
    let mut edit = Edit::default();
    (edit.multigroup, edit.namespaced) = (arguments.multigroup, arguments.namespaced);
    edit.license = arguments.license.map(|license| license.as_str().to_owned());
    edit.owner = arguments.owner;
    edit.grafana = arguments.plugins.feature(Some(Feature::Grafana))?;
    let has_dashboards = edit.grafana;
    let is_for_others = edit.is_empty() && chain.has_external();
    let step = Step::Edit(edit);
    let plan_edit = |plan: &mut Plan<'_>| {
        // All flags may be those of other plugins.
        if is_for_others {
            return Ok(());
        }
        Ok(record::plan(&step, &opened.project, plan)?)
    };
    opened.scaffold(&chain, Command::Edit, shell, plan_edit)?;
    if has_dashboards {
        shell.status("Next", "import the dashboards of grafana/ into Grafana; list your own metrics in grafana/custom-metrics/config.yaml");
    }
    if arguments.namespaced.is_some_and(|namespaced| namespaced != opened.project.namespaced) {
        shell.status("Next", "regenerate the roles: kubewright manifests");
    }
    Ok(())
}
