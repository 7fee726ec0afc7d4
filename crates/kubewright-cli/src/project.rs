//! The project on disk: found, read, and changed as a whole.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use kubewright_scaffold::{
    external::PluginKey,
    plan::{Change, Plan, Source},
    project::{self, Project},
    write::Folder,
};

use crate::{
    external::{Chain, Command},
    shell::Shell,
};

/// The project that a command was called in.
#[derive(Debug)]
pub(crate) struct Opened {
    folder: Folder,
    /// What its `PROJECT` says.
    pub(crate) project: Project,
}

impl Opened {
    /// Finds the project of the current folder, or of one above it, as cargo does.
    pub(crate) fn find() -> Result<Self> {
        let here = current_folder()?;
        let Some(root) = here.ancestors().find(|folder| folder.join(project::FILE).is_file()) else {
            bail!(
                "there is no {} in {} or a folder above it: begin a project with kubewright init, or go to its folder",
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

    /// Who scaffolds here: those that are wanted, or else those that `PROJECT` names.
    pub(crate) fn chain(&self, wanted: &[PluginKey]) -> Result<Chain> {
        let Project { layout, .. } = &self.project;
        let file = || self.folder.path().join(project::FILE);
        let foreign = || {
            let (file, layout, ours) = (file(), layout.join(", "), project::LAYOUT);
            format!(
                "{} is of the layout {layout}, and kubewright changes projects of {ours} and of plugins that are there: \
                 use the tool that made it",
                file.display()
            )
        };
        let chain =
            if wanted.is_empty() { Chain::of(&self.project).with_context(foreign)? } else { Chain::find(wanted)? };
        if chain.has_ours() && !layout.iter().any(|layout| layout == project::LAYOUT) {
            bail!(foreign());
        }
        Ok(chain)
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// As [`scaffold`], here.
    pub(crate) fn scaffold(
        &self,
        chain: &Chain,
        command: Command,
        shell: &Shell,
        plan: impl FnMut(&mut Plan<'_>) -> Result<()>,
    ) -> Result<()> {
        scaffold(&self.folder, chain, command, shell, plan)
    }
}

/// Plans changes to a folder, and makes all of them or none.
pub(crate) fn change(folder: &Folder, shell: &Shell, plan: impl FnOnce(&mut Plan<'_>) -> Result<()>) -> Result<()> {
    let mut planned = Plan::new(folder);
    plan(&mut planned)?;
    write(folder, shell, &planned.finish()?)
}

/// The same by all plugins of a chain: `plan` is our own part.
pub(crate) fn scaffold(
    folder: &Folder,
    chain: &Chain,
    command: Command,
    shell: &Shell,
    plan: impl FnMut(&mut Plan<'_>) -> Result<()>,
) -> Result<()> {
    write(folder, shell, &chain.plan(command, folder, shell, plan)?)
}

fn write(folder: &Folder, shell: &Shell, changes: &[Change]) -> Result<()> {
    folder.write(changes)?;
    report(changes, shell);
    Ok(())
}

/// Tells of the files that people edit, and of the others on demand.
fn report(changes: &[Change], shell: &Shell) {
    for change in changes {
        let word = if change.before.is_none() { "Created" } else { "Changed" };
        if ["src/", "tests/"].iter().any(|folder| change.path.starts_with(folder)) {
            shell.status(word, &change.path);
        } else {
            shell.detail(word, &change.path);
        }
    }
    let new = changes.iter().filter(|change| change.before.is_none()).count();
    shell.status("Finished", format!("{new} files created, {} changed", changes.len() - new));
}

pub(crate) fn current_folder() -> Result<PathBuf> {
    std::env::current_dir().context("find the current folder")
}

/// The folder of the project that a command was called in: of its `PROJECT`, or where there is none, of its crate.
pub(crate) fn project_folder() -> Result<PathBuf> {
    let here = current_folder()?;
    let of = |file: &str| here.ancestors().find(|folder| folder.join(file).is_file());
    let folder = of(project::FILE).or_else(|| of("Cargo.toml"));
    let folder = folder.with_context(|| {
        format!("{} is in no project: go to the folder of one, or begin one with kubewright init", here.display())
    })?;
    Ok(folder.to_owned())
}

/// The names of what is in a folder; what is no text is shown as far as it is one.
pub(crate) fn entries(folder: &Path) -> Result<Vec<String>> {
    let failed = || format!("look into {}", folder.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        names.push(entry.with_context(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
