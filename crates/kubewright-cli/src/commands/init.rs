//! `kubewright init`: creates a project in the current directory.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use kubewright_scaffold::{
    command::{Init, License, Step, unexpected},
    name::{Domain, ProjectName},
    project::Project,
    record,
    write::Folder,
};

use crate::{
    directory::entry_names,
    external::{Command, PluginChain, Plugins},
    project::{current_folder, scaffold},
    shell::Shell,
};

/// Arguments of `kubewright init`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Create a project named after the directory
  kubewright init --domain tutorial.kubebuilder.io

  # Choose its name and its repository
  kubewright init --domain example.com --project-name my-operator --repo github.com/me/my-operator

  # Add a licence header to each source file
  kubewright init --domain example.com --owner 'Jane Doe' --license apache2

The directory may contain hidden files, *.md files and LICENSE. No existing file is overwritten.")]
pub(crate) struct Arguments {
    /// Domain of the API groups
    #[arg(long, default_value = "my.domain")]
    domain: Domain,

    /// Name of the project and its package, and prefix of its objects in the cluster [default: the name of the
    /// directory]
    #[arg(long, value_name = "NAME")]
    project_name: Option<ProjectName>,

    /// Repository of the sources, such as github.com/me/my-operator
    #[arg(long, value_name = "URL", value_parser = repository)]
    repo: Option<String>,

    /// Licence in the header of source files: apache2, copyright, none, or an SPDX expression [default: none]
    #[arg(long)]
    license: Option<License>,

    /// Copyright holder in the header of source files
    #[arg(long, value_parser = owner)]
    owner: Option<String>,

    /// Keep the sources of each API group in a directory of its own
    #[arg(long)]
    multigroup: bool,

    /// Watch only the operator's own namespace, with permissions limited to it
    #[arg(long)]
    namespaced: bool,

    /// Depend on a checkout of Kubewright in this directory instead of the published crates
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,

    #[command(flatten)]
    plugins: Plugins,
}

/// Returns the path of a checkout of Kubewright, after checking that it can be written in a TOML string.
fn sources(folder: &Path) -> Result<String> {
    let folder = folder.canonicalize().with_context(|| format!("find --sdk {}", folder.display()))?;
    if !folder.join("crates/kubewright/Cargo.toml").is_file() {
        bail!("{} has no crates/kubewright: set --sdk to a checkout of Kubewright", folder.display());
    }
    match folder.to_str() {
        Some(text) if !text.contains(['"', '\\']) && !text.chars().any(char::is_control) => Ok(text.to_owned()),
        _ => bail!(
            "{} cannot be written to Cargo.toml: move the checkout to a path without quotes and backslashes",
            folder.display()
        ),
    }
}

/// Parses a URL that can be written in a TOML string.
fn repository(text: &str) -> Result<String, String> {
    let is_fine = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\');
    if !text.is_empty() && text.chars().all(is_fine) {
        return Ok(text.into());
    }
    Err("use a URL without spaces and quotes, such as github.com/me/my-operator".into())
}

/// Parses a name that can be written in a line comment.
pub(crate) fn owner(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.chars().any(char::is_control) {
        return Err("use a name without line breaks".into());
    }
    Ok(text.trim().into())
}

/// Creates the project.
pub(crate) fn run(arguments: &Arguments, shell: &Shell) -> Result<()> {
    let here = current_folder()?;
    let names = entry_names(&here)?;
    if let Some(odd) = unexpected(names.iter().map(String::as_str)) {
        if odd == kubewright_scaffold::project::FILE {
            bail!("{} is already a project: change it with kubewright edit", here.display());
        }
        bail!("{} contains {odd}: create the project in an empty directory (mkdir NAME && cd NAME)", here.display());
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
    arguments.plugins.feature(None)?;
    let plugins = &arguments.plugins.plugins;
    let chain = if plugins.is_empty() { PluginChain::built_in() } else { PluginChain::find(plugins)? };
    init.layout = chain.keys();
    let step = Step::Init(init);
    scaffold(&Folder::new(here), &chain, Command::Init, shell, |plan| {
        Ok(record::plan(&step, &Project::default(), plan)?)
    })?;
    shell.status("Next", "add an API: kubewright create api --group GROUP --version v1 --kind KIND");
    Ok(())
}
