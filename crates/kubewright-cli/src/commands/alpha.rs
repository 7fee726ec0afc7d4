//! `kubewright alpha`: experimental commands.

use std::{io::ErrorKind, path::Path, process::Command as Program};

use anyhow::{Context, Error, Result, bail};
use clap::Subcommand;
use kubewright_scaffold::{
    plan::{Plan, Source},
    project,
    record::{self, Record},
    update::{Outcome, update},
};

use crate::{project::OpenProject, shell::Shell};

/// The version of this command.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The maximum number of uncommitted files in an error.
const NAMED: usize = 5;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Update the scaffold of a project to this version of kubewright
    Update(Update),
}

/// Arguments of `kubewright alpha update`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright alpha update

Each file is the result of a three-way merge of the old scaffold, as recorded in .kubewright/scaffold.yaml, your file, and the new scaffold.
Where both changed the same lines, the file gets git's conflict markers, and the command exits with code 1 after all files are merged.")]
pub(crate) struct Update {
    /// Update even if there are uncommitted changes, or if git is not available
    #[arg(long)]
    force: bool,
}

/// Runs a subcommand.
pub(crate) fn run(command: Command, shell: &Shell) -> Result<()> {
    match command {
        Command::Update(arguments) => update_scaffold(&arguments, shell),
    }
}

fn update_scaffold(arguments: &Update, shell: &Shell) -> Result<()> {
    let opened = OpenProject::find()?;
    let folder = opened.folder();
    refuse_newer(project::FILE, &opened.project.cli_version)?;
    let Some(text) = folder.read(record::FILE).with_context(|| format!("read {}", record::FILE))? else {
        bail!(
            "{} does not exist, so the old scaffold is not known: restore the file from version control; a project that never had it cannot be \
             updated: create a similar one in another directory and compare the two",
            record::FILE
        );
    };
    let mut record = Record::read(&text)?;
    refuse_newer(record::FILE, &record.cli_version)?;
    if !arguments.force {
        refuse_uncommitted(folder.path())?;
    }
    let new = record.repeat()?;
    let mut plan = Plan::new(folder);
    let outcomes = update(&record.files, &new, &mut plan)?;
    if opened.project.cli_version != VERSION {
        let mut project = opened.project.clone();
        project.cli_version = VERSION.into();
        plan.replace(project::FILE, project.write()?);
    }
    record.renew(new);
    plan.replace(record::FILE, record.write()?);
    let changes = plan.finish()?;
    folder.write(&changes)?;
    if changes.is_empty() {
        shell.status("Unchanged", format!("the scaffold is up to date with kubewright {VERSION}"));
        return Ok(());
    }
    for (path, outcome) in &outcomes {
        let (word, remark) = describe(*outcome);
        shell.status(word, format!("{path}{remark}"));
    }
    let conflicts: Vec<_> = outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Conflict).collect();
    if !conflicts.is_empty() {
        let paths: String = conflicts.iter().map(|(path, _)| format!("\n  {path}")).collect();
        bail!(
            "the project and the scaffold changed the same lines: resolve the conflicts between <<<<<<< and >>>>>>> (ours is the \
             project, theirs the scaffold) in these files; all other files are updated:{paths}"
        );
    }
    shell.status("Finished", format!("updated the scaffold to kubewright {VERSION}"));
    shell.status("Next", "review git diff, then run kubewright manifests && cargo test");
    Ok(())
}

/// Returns the status word and the remark for an outcome.
fn describe(outcome: Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Created => ("Created", ""),
        Outcome::Merged => ("Merged", ""),
        Outcome::Conflict => ("Conflict", ""),
        Outcome::Deleted => ("Skipped", " (deleted in the project, changed in the scaffold)"),
        Outcome::Obsolete => ("Obsolete", " (no longer in the scaffold; delete it if you do not need it)"),
        _ => ("Replaced", ""),
    }
}

/// Fails if a file was written by a newer version, since this version might drop some of its content.
fn refuse_newer(file: &str, wrote: &str) -> Result<()> {
    let parts = |version: &str| -> Option<Vec<u64>> {
        let number = version.split(['-', '+']).next()?;
        number.split('.').map(|part| part.parse().ok()).collect()
    };
    if parts(wrote) > parts(VERSION) {
        bail!("{file} was written by kubewright {wrote}, and this is {VERSION}: use version {wrote} or newer");
    }
    Ok(())
}

/// Fails if git could not restore the current files.
fn refuse_uncommitted(folder: &Path) -> Result<()> {
    let mut git = Program::new("git");
    git.args(["status", "--porcelain", "--untracked-files=normal", "--", "."]);
    let output = match git.current_dir(folder).env("GIT_OPTIONAL_LOCKS", "0").output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("git is not installed, so the update could not be undone: use --force to update anyway")
        }
        Err(error) => return Err(Error::new(error).context("run git status")),
    };
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("the update could not be undone by git ({}): use --force to update anyway", why.trim());
    }
    let status = String::from_utf8_lossy(&output.stdout);
    let changed: Vec<_> = status.lines().collect();
    if !changed.is_empty() {
        let more = if changed.len() > NAMED { "\n  …" } else { "" };
        let named: String = changed.iter().take(NAMED).map(|line| format!("\n  {line}")).collect();
        bail!("there are uncommitted changes: commit them first, or use --force to update anyway:{named}{more}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_are_refused() {
        for fine in ["", "0.0.9", VERSION, "odd", "0.1.0-rc.1"] {
            assert!(refuse_newer("PROJECT", fine).is_ok(), "{fine}");
        }
        for newer in ["0.1.1", "0.10.0", "1.0.0-rc.1"] {
            assert!(refuse_newer("PROJECT", newer).is_err(), "{newer}");
        }
    }
}
