//! `kubewright alpha`: commands that may still change.

use std::{io::ErrorKind, path::Path, process::Command as Program};

use anyhow::{Context, Error, Result, bail};
use clap::Subcommand;
use kubewright_scaffold::{
    plan::{Plan, Source},
    project,
    record::{self, Record},
    update::{Outcome, update},
};

use crate::{project::Opened, shell::Shell};

/// What scaffolds here.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How many files are named that stand in the way.
const NAMED: usize = 5;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bring what this kubewright scaffolds into a project of an older one.
    Update(Update),
}

/// How carefully.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubewright alpha update

Each file is merged of three: what was scaffolded (.kubewright/scaffold.yaml has it), what became of it here, and what is scaffolded now.
Where the last two changed the same lines, both stay between git's markers, and the command fails when it is done.")]
pub(crate) struct Update {
    /// Go on where git has not all that is here, or where there is no git.
    #[arg(long)]
    force: bool,
}

/// Does it.
pub(crate) fn run(command: Command, shell: &Shell) -> Result<()> {
    match command {
        Command::Update(arguments) => bring(&arguments, shell),
    }
}

fn bring(arguments: &Update, shell: &Shell) -> Result<()> {
    let opened = Opened::find()?;
    let folder = opened.folder();
    refuse_newer(project::FILE, &opened.project.cli_version)?;
    let Some(text) = folder.read(record::FILE).with_context(|| format!("read {}", record::FILE))? else {
        bail!(
            "there is no {}, so what was scaffolded here isn't known: take it from your version control. A project that was begun without it \
             can't be updated; begin one like it with this kubewright in another folder, and compare the two",
            record::FILE
        );
    };
    let mut record = Record::read(&text)?;
    refuse_newer(record::FILE, &record.cli_version)?;
    if !arguments.force {
        refuse_dirty(folder.path())?;
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
        shell.status("Fresh", format!("the scaffold is that of kubewright {VERSION}"));
        return Ok(());
    }
    for (path, outcome) in &outcomes {
        let (word, remark) = told(*outcome);
        shell.status(word, format!("{path}{remark}"));
    }
    let conflicts: Vec<_> = outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Conflict).collect();
    if !conflicts.is_empty() {
        let paths: String = conflicts.iter().map(|(path, _)| format!("\n  {path}")).collect();
        bail!(
            "the project and the scaffold changed the same lines. Both are there, between <<<<<<< and >>>>>>> (ours is the project's, theirs the scaffold's): choose, and take the markers away. \
             All else is done.{paths}"
        );
    }
    shell.status("Finished", format!("the scaffold is that of kubewright {VERSION}"));
    shell.status("Next", "look through git diff, then: kubewright manifests && cargo test");
    Ok(())
}

fn told(outcome: Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Created => ("Created", ""),
        Outcome::Merged => ("Merged", ""),
        Outcome::Conflict => ("Conflict", ""),
        Outcome::Deleted => ("Left out", " (it was deleted here; the scaffold has changed it)"),
        Outcome::Obsolete => ("Obsolete", " (the scaffold has it no more; delete it if you don't need it)"),
        _ => ("Replaced", ""),
    }
}

/// Refuses what a newer program wrote: it may know what this one would lose.
fn refuse_newer(file: &str, wrote: &str) -> Result<()> {
    let parts = |version: &str| -> Option<Vec<u64>> {
        let number = version.split(['-', '+']).next()?;
        number.split('.').map(|part| part.parse().ok()).collect()
    };
    if parts(wrote) > parts(VERSION) {
        bail!("{file} was written by kubewright {wrote}, and this is {VERSION}: use that one, or a newer one");
    }
    Ok(())
}

/// Refuses where git couldn't bring back what was there.
fn refuse_dirty(folder: &Path) -> Result<()> {
    let mut git = Program::new("git");
    git.args(["status", "--porcelain", "--untracked-files=normal", "--", "."]);
    let output = match git.current_dir(folder).env("GIT_OPTIONAL_LOCKS", "0").output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("there is no git to bring back what was here: use --force to go on without")
        }
        Err(error) => return Err(Error::new(error).context("run git status")),
    };
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("git can't bring back what was here ({}): use --force to go on without", why.trim());
    }
    let told = String::from_utf8_lossy(&output.stdout);
    let changed: Vec<_> = told.lines().collect();
    if !changed.is_empty() {
        let more = if changed.len() > NAMED { "\n  …" } else { "" };
        let named: String = changed.iter().take(NAMED).map(|line| format!("\n  {line}")).collect();
        bail!("git doesn't have all that is here: commit it first, or use --force to go on{named}{more}");
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
