//! `kubewright alpha`: experimental commands.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command as Program,
};

use anyhow::{Context, Error, Result, bail};
use clap::Subcommand;
use kubewright_scaffold::{
    command::Step,
    generate,
    plan::{Plan, Source},
    project,
    record::{self, Record},
    update::{Outcome, is_generated, update},
    write::Folder,
};

use crate::{
    directory::entry_names,
    project::{OpenProject, write},
    shell::Shell,
};

/// The version of this command.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The maximum number of uncommitted files in an error.
const NAMED: usize = 5;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Update the scaffold of a project to this version of kubewright
    Update(Update),
    /// Scaffold a project again from its PROJECT file
    Generate(Generate),
}

/// Arguments of `kubewright alpha update`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Say what an update would change, and then do it
  kubewright alpha update --dry-run
  kubewright alpha update

Each file is the result of a three-way merge of the old scaffold, as recorded in .kubewright/scaffold.yaml, your file, and the new scaffold.
Where both changed the same lines, the file gets git's conflict markers, and the command exits with code 1 after all files are merged.")]
pub(crate) struct Update {
    /// Update even if there are uncommitted changes, or if git is not available
    #[arg(long)]
    force: bool,

    /// Print the outcome for each file, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `kubewright alpha generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Scaffold the project of the current directory into another one, to compare them
  kubewright alpha generate --output-dir ../fresh

  # Replace the scaffolded files by those of this version of kubewright, and see with git what was edited
  kubewright alpha generate

The commands that made the project are found from PROJECT. Without --output-dir, scaffolded files are overwritten, including edits; all other
files stay, and so do those that kubewright manifests generates. A project without .kubewright/scaffold.yaml gets one, so that kubewright
alpha update works from then on.")]
pub(crate) struct Generate {
    /// Directory of the project [default: the current directory or one above it]
    #[arg(long, value_name = "DIR")]
    input_dir: Option<PathBuf>,

    /// Empty or new directory for the scaffold [default: the directory of the project]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Overwrite even if there are uncommitted changes, or if git is not available
    #[arg(long)]
    force: bool,

    /// Print the outcome for each file, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs a subcommand.
pub(crate) fn run(command: Command, shell: &Shell) -> Result<()> {
    match command {
        Command::Update(arguments) => update_scaffold(&arguments, shell),
        Command::Generate(arguments) => generate_scaffold(&arguments, shell),
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
    if !arguments.force && !arguments.dry_run {
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
    if !arguments.dry_run {
        folder.write(&changes)?;
    }
    if changes.is_empty() {
        shell.status("Unchanged", format!("the scaffold is up to date with kubewright {VERSION}"));
        return Ok(());
    }
    for (path, outcome) in &outcomes {
        let (word, remark) = describe(*outcome);
        shell.status(word, format!("{path}{remark}"));
    }
    if arguments.dry_run {
        shell.status("Finished", format!("nothing was written; {} files would change", changes.len()));
        return Ok(());
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

fn generate_scaffold(arguments: &Generate, shell: &Shell) -> Result<()> {
    let opened = match &arguments.input_dir {
        Some(folder) => OpenProject::above(folder)?,
        None => OpenProject::find()?,
    };
    refuse_newer(project::FILE, &opened.project.cli_version)?;
    let mut steps = generate::steps(&opened.project)?;
    // PROJECT does not contain the path of a checkout.
    let recorded = opened.folder().read(record::FILE).with_context(|| format!("read {}", record::FILE))?;
    let recorded = recorded.map(|text| Record::read(&text)).transpose()?;
    if let (Some(Step::Init(new)), Some(Step::Init(old))) =
        (steps.first_mut(), recorded.as_ref().and_then(|record| record.steps.first()))
    {
        new.sdk.clone_from(&old.sdk);
    }
    for plugin in opened.project.layout.iter().filter(|key| *key != project::LAYOUT) {
        shell.warning(&format!("the files of plugin {plugin} are not generated: run its commands yourself"));
    }
    let mut files = generate::files(&steps)?;
    let folder = match &arguments.output_dir {
        Some(output) => {
            refuse_filled(output)?;
            if !arguments.dry_run {
                fs::create_dir_all(output).with_context(|| format!("create {}", output.display()))?;
            }
            Folder::new(output)
        }
        None if arguments.force || arguments.dry_run => opened.folder().clone(),
        None => {
            refuse_uncommitted(opened.folder().path())?;
            opened.folder().clone()
        }
    };
    if arguments.output_dir.is_none() {
        let mut project = opened.project.clone();
        project.cli_version = VERSION.into();
        files.insert(project::FILE.into(), project.write()?);
    }
    let mut plan = Plan::new(&folder);
    for (path, text) in files {
        if is_generated(&path) {
            plan.create_if_missing(&path, text);
        } else {
            plan.replace(&path, text);
        }
    }
    let changes = plan.finish()?;
    if arguments.dry_run {
        for change in &changes {
            shell.status(if change.before.is_none() { "Created" } else { "Replaced" }, &change.path);
        }
        shell.status("Finished", format!("nothing was written; {} files would change", changes.len()));
        return Ok(());
    }
    write(&folder, shell, &changes)?;
    shell.status("Next", "run kubewright manifests, and compare the project with its former state");
    Ok(())
}

/// Fails if a directory contains more than hidden files.
fn refuse_filled(folder: &Path) -> Result<()> {
    let names = if folder.is_dir() { entry_names(folder)? } else { Vec::new() };
    match names.iter().find(|name| !name.starts_with('.')) {
        Some(name) => bail!("{} contains {name}: set --output-dir to an empty or a new directory", folder.display()),
        None => Ok(()),
    }
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
