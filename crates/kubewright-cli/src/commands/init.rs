//! `kubewright init`: a project in the current folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use kubewright_scaffold::{
    command::{Init, License, Step, unexpected},
    name::{Domain, ProjectName},
    project::Project,
    write::Folder,
};

use crate::{
    external::{Chain, Command, Plugins},
    project::{current_folder, entries, scaffold},
    shell::Shell,
};

/// What the project is to be.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright init --domain tutorial.kubebuilder.io
  kubewright init --domain example.com --project-name my-operator --repo github.com/me/my-operator
  kubewright init --domain example.com --owner 'Jane Doe' --license apache2

The folder may have hidden files, *.md and LICENSE in it. Nothing that is there is overwritten.")]
pub(crate) struct Arguments {
    /// What the groups of the project's kinds end with.
    #[arg(long, default_value = "my.domain")]
    domain: Domain,

    /// The project's name, which its package has and names in the cluster begin with [default: the folder's].
    #[arg(long, value_name = "NAME")]
    project_name: Option<ProjectName>,

    /// Where the sources will be, such as github.com/me/my-operator.
    #[arg(long, value_name = "ADDRESS", value_parser = repository)]
    repo: Option<String>,

    /// The licence in the heads of new sources: apache2, copyright, none, or as SPDX says it [default: none].
    #[arg(long)]
    license: Option<License>,

    /// Whose the sources are, in the heads of new ones.
    #[arg(long, value_parser = owner)]
    owner: Option<String>,

    /// Keep kinds in folders by group.
    #[arg(long)]
    multigroup: bool,

    /// Watch the operator's own namespace alone, with rights there.
    #[arg(long)]
    namespaced: bool,

    /// Build with Kubewright's sources in this folder, not with what is published.
    #[arg(long, value_name = "FOLDER")]
    sdk: Option<PathBuf>,

    #[command(flatten)]
    plugins: Plugins,
}

/// The folder of Kubewright's sources, as a TOML text may have it.
fn sources(folder: &Path) -> Result<String> {
    let folder = folder.canonicalize().with_context(|| format!("find --sdk {}", folder.display()))?;
    if !folder.join("crates/kubewright/Cargo.toml").is_file() {
        bail!("{} has no crates/kubewright: give the folder of Kubewright's sources with --sdk", folder.display());
    }
    match folder.to_str() {
        Some(text) if !text.contains(['"', '\\']) && !text.chars().any(char::is_control) => Ok(text.to_owned()),
        _ => bail!("{} can't stand in a TOML file: move it to a folder with a simpler name", folder.display()),
    }
}

/// An address that can be in a TOML text.
fn repository(text: &str) -> Result<String, String> {
    let is_fine = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\');
    if !text.is_empty() && text.chars().all(is_fine) {
        return Ok(text.into());
    }
    Err("use an address without blanks and quotes, such as github.com/me/my-operator".into())
}

/// A name that can be in a comment of one line.
pub(crate) fn owner(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.chars().any(char::is_control) {
        return Err("use a name of one line".into());
    }
    Ok(text.trim().into())
}

/// Begins the project.
pub(crate) fn run(arguments: &Arguments, shell: &Shell) -> Result<()> {
    let here = current_folder()?;
    let names = entries(&here)?;
    if let Some(odd) = unexpected(names.iter().map(String::as_str)) {
        if odd == kubewright_scaffold::project::FILE {
            bail!("{} is a project already: change it with kubewright edit", here.display());
        }
        bail!("{} has {odd} in it: begin a project in a folder of its own, with mkdir NAME && cd NAME", here.display());
    }
    let name = match &arguments.project_name {
        Some(name) => name.clone(),
        None => ProjectName::of_folder(&here.file_name().unwrap_or_default().to_string_lossy())?,
    };
    let mut init = Init::new(name.clone());
    init.domain = Some(arguments.domain.clone());
    init.repo = arguments.repo.clone().unwrap_or_default();
    (init.multigroup, init.namespaced) = (arguments.multigroup, arguments.namespaced);
    init.license.clone_from(&arguments.license);
    init.owner.clone_from(&arguments.owner);
    init.sdk = arguments.sdk.as_deref().map(sources).transpose()?;
    let plugins = &arguments.plugins.plugins;
    let chain = if plugins.is_empty() { Chain::ours() } else { Chain::find(plugins)? };
    init.layout = chain.keys();
    let step = Step::Init(init);
    scaffold(&Folder::new(here), &chain, Command::Init, shell, |plan| Ok(step.carry_out(&Project::default(), plan)?))?;
    shell.status("Next", "add a kind: kubewright create api --group GROUP --version v1 --kind KIND");
    Ok(())
}
