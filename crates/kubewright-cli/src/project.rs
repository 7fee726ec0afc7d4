//! The project on disk: locating it, reading it, and changing all of its files or none.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use kubewright_scaffold::{
    external::PluginKey,
    plan::{Change, Plan, Source},
    project::{self, Project},
    write::Folder,
};

use crate::{
    external::{Command, PluginChain},
    shell::Shell,
};

/// The project of the current directory.
#[derive(Debug)]
pub(crate) struct OpenProject {
    folder: Folder,
    /// The content of its `PROJECT` file.
    pub(crate) project: Project,
}

impl OpenProject {
    /// Finds the project in the current directory or in one of its parents, as cargo does.
    pub(crate) fn find() -> Result<Self> {
        Self::above(&current_folder()?)
    }

    /// Finds the project in a directory or in one of its parents.
    pub(crate) fn above(here: &Path) -> Result<Self> {
        let Some(root) = here.ancestors().find(|folder| folder.join(project::FILE).is_file()) else {
            bail!(
                "there is no {} in {} or a directory above it: create a project with kubewright init, or change to its directory",
                project::FILE,
                here.display()
            );
        };
        let folder = Folder::new(root);
        let text =
            folder.read(project::FILE).with_context(|| format!("read {}", root.join(project::FILE).display()))?;
        let project = Project::read(&text.unwrap_or_default())?;
        Ok(Self { folder, project })
    }

    /// Returns the plugins for a command: the given ones, or those in `PROJECT`.
    pub(crate) fn chain(&self, wanted: &[PluginKey]) -> Result<PluginChain> {
        let Project { layout, .. } = &self.project;
        let file = || self.folder.path().join(project::FILE);
        let foreign = || {
            let (file, layout, ours) = (file(), layout.join(", "), project::LAYOUT);
            format!(
                "{} has the layout {layout}, but kubewright supports {ours} and installed plugins only: use the tool that created the \
                 project",
                file.display()
            )
        };
        let chain = if wanted.is_empty() {
            PluginChain::of(&self.project).with_context(foreign)?
        } else {
            PluginChain::find(wanted)?
        };
        if chain.has_built_in() && !layout.iter().any(|layout| layout == project::LAYOUT) {
            bail!(foreign());
        }
        Ok(chain)
    }

    /// Returns the directory of the project.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Calls [`scaffold`] for this project.
    pub(crate) fn scaffold(
        &self,
        chain: &PluginChain,
        command: Command,
        shell: &Shell,
        plan: impl FnMut(&mut Plan<'_>) -> Result<()>,
    ) -> Result<()> {
        scaffold(&self.folder, chain, command, shell, plan)
    }
}

/// Plans changes to a directory, and writes all of them or none.
pub(crate) fn change(folder: &Folder, shell: &Shell, plan: impl FnOnce(&mut Plan<'_>) -> Result<()>) -> Result<()> {
    let mut planned = Plan::new(folder);
    plan(&mut planned)?;
    write(folder, shell, &planned.finish()?)
}

/// Plans changes by all plugins of a chain, and writes all of them or none. `plan` is kubewright's own part.
pub(crate) fn scaffold(
    folder: &Folder,
    chain: &PluginChain,
    command: Command,
    shell: &Shell,
    plan: impl FnMut(&mut Plan<'_>) -> Result<()>,
) -> Result<()> {
    write(folder, shell, &chain.plan(command, folder, shell, plan)?)
}

pub(crate) fn write(folder: &Folder, shell: &Shell, changes: &[Change]) -> Result<()> {
    folder.write(changes)?;
    report(changes, shell);
    Ok(())
}

/// Reports the files that users edit and, with `--verbose`, all others.
fn report(changes: &[Change], shell: &Shell) {
    for change in changes {
        let word = match (&change.before, &change.after) {
            (None, _) => "Created",
            (Some(_), None) => "Deleted",
            (Some(_), Some(_)) => "Changed",
        };
        if ["src/", "tests/"].iter().any(|folder| change.path.starts_with(folder)) {
            shell.status(word, &change.path);
        } else {
            shell.detail(word, &change.path);
        }
    }
    let new = changes.iter().filter(|change| change.before.is_none()).count();
    let gone = changes.iter().filter(|change| change.after.is_none()).count();
    let deleted = if gone > 0 { format!(", {gone} deleted") } else { String::new() };
    shell.status("Finished", format!("{new} files created, {} changed{deleted}", changes.len() - new - gone));
}

pub(crate) fn current_folder() -> Result<PathBuf> {
    std::env::current_dir().context("get the current directory")
}

/// Returns the directory of the current project: the one that contains `PROJECT` or, failing that, `Cargo.toml`.
pub(crate) fn project_folder() -> Result<PathBuf> {
    let here = current_folder()?;
    let of = |file: &str| here.ancestors().find(|folder| folder.join(file).is_file());
    let folder = of(project::FILE).or_else(|| of("Cargo.toml"));
    let folder = folder.with_context(|| {
        format!("{} is not in a project: create one with kubewright init, or change to its directory", here.display())
    })?;
    Ok(folder.to_owned())
}
