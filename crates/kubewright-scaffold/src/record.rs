//! The record of the scaffold in the file `.kubewright/scaffold.yaml`, which [`update`](crate::update) needs.
//!
//! It contains each command with its arguments, and each file as the commands wrote it, before any edits. A newer
//! version of kubewright repeats the commands, and compares the results with these files. To maintain the record, each
//! command runs a second time on the files in the record, independently of edits in the project.

use std::{collections::BTreeMap, io};

use kubewright_apimachinery::decode::yaml_file;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    command::{Step, StepError},
    plan::{Change, Plan, PlanError, Source},
    project::{self, Project, ProjectError},
};

/// The path of the file in a project.
pub const FILE: &str = ".kubewright/scaffold.yaml";

/// The comment above the content.
const HEADER: &str = "\
# Written by kubewright: what was scaffolded here, as it was before it was edited. Leave it as it is, and keep it in version control:
# kubewright alpha update compares it with what a newer kubewright would scaffold.
";

/// The record of a scaffold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Record {
    /// The version of kubewright that last wrote the record.
    pub cli_version: String,
    /// The commands, in order.
    pub steps: Vec<Step>,
    /// The files that existed before `init`, and are not part of the scaffold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<String>,
    /// The files as the commands wrote them. `PROJECT` is not included, since it contains the current state.
    pub files: BTreeMap<String, String>,
}

/// An error in a record.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file is not valid YAML, or has unexpected values.
    #[error(
        "cannot read {FILE}: {0}; restore it from version control, or delete it if it is lost (only kubewright alpha update needs it)"
    )]
    Syntax(String),
    /// The file cannot be read.
    #[error("cannot read {FILE}: {0}")]
    Unreadable(#[from] io::Error),
    /// The record cannot be written.
    #[error("cannot write {FILE}: {0}")]
    Unwritable(String),
    /// A command cannot be repeated.
    #[error("cannot repeat `kubewright {step}`, step {number} of {FILE}: {why}")]
    Step {
        /// The position of the command, counted from 1.
        number: usize,
        /// The command.
        step: &'static str,
        /// The reason.
        why: Box<StepError>,
    },
    /// The files of a command conflict with those of earlier commands.
    #[error("cannot repeat `kubewright {step}`, step {number} of {FILE}: {why}")]
    Plan {
        /// The position of the command, counted from 1.
        number: usize,
        /// The command.
        step: &'static str,
        /// The reason.
        why: PlanError,
    },
    /// The repeated `PROJECT` is invalid.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

impl Record {
    /// Parses a record.
    ///
    /// # Errors
    /// Returns an error if the text is not a record.
    pub fn read(text: &str) -> Result<Self, RecordError> {
        let content = yaml_file(text).map_err(|error| RecordError::Syntax(error.to_string()))?;
        serde_json::from_value(content).map_err(|error| RecordError::Syntax(error.to_string()))
    }

    /// Returns the content of the file.
    ///
    /// # Errors
    /// Returns an error if a value cannot be written as YAML.
    pub fn write(&self) -> Result<String, RecordError> {
        let content = serde_saphyr::to_string(self).map_err(|error| RecordError::Unwritable(error.to_string()))?;
        Ok(format!("{HEADER}{content}"))
    }

    /// Adds a command and its files. Changes that are impossible in the files of the record are skipped: the user has
    /// made the corresponding change in the project by hand.
    fn follow(&mut self, step: &Step, project: &Project) {
        let mut plan = Plan::new(&self.files);
        // Obstacles in the project were already reported.
        let _ = step.plan(project, &mut plan);
        let changes = plan.possible();
        apply(&mut self.files, changes);
        self.files.remove(project::FILE);
        // A command that was interrupted before it wrote `PROJECT` is run again.
        let same = |last: &Step| serde_json::to_value(last).ok() == serde_json::to_value(step).ok();
        if !self.steps.last().is_some_and(same) {
            self.steps.push(step.clone());
        }
        self.cli_version = env!("CARGO_PKG_VERSION").into();
    }

    /// Replaces the files with those of the new scaffold.
    pub fn renew(&mut self, mut files: BTreeMap<String, String>) {
        files.remove(project::FILE);
        self.files = files;
        self.cli_version = env!("CARGO_PKG_VERSION").into();
    }

    /// Returns the files of the new scaffold, including `PROJECT`, by repeating all commands from the start.
    ///
    /// # Errors
    /// Returns an error if a command cannot be repeated.
    pub fn repeat(&self) -> Result<BTreeMap<String, String>, RecordError> {
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        for (index, step) in self.steps.iter().enumerate() {
            let (number, name) = (index + 1, step.name());
            let project = files.get(project::FILE).map(|text| Project::read(text)).transpose()?.unwrap_or_default();
            let mut plan = Plan::new(&files);
            let planned = step.plan(&project, &mut plan);
            planned.map_err(|why| RecordError::Step { number, step: name, why: Box::new(why) })?;
            let changes = plan.finish().map_err(|why| RecordError::Plan { number, step: name, why })?;
            apply(&mut files, changes);
        }
        files.retain(|path, _| !self.foreign.contains(path));
        Ok(files)
    }
}

/// A failure to run a command and to record it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScaffoldError {
    /// The command failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The record cannot be used.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Plans the changes of a command, including `PROJECT` and the record.
///
/// # Errors
/// Returns an error if the command is invalid for the project, or if the record cannot be read.
pub fn plan(step: &Step, project: &Project, plan: &mut Plan<'_>) -> Result<(), ScaffoldError> {
    step.plan(project, plan)?;
    note(step, project, plan)?;
    Ok(())
}

/// Adds a command to the record of the project that a plan is for. A project without a record does not get one.
fn note(step: &Step, project: &Project, plan: &mut Plan<'_>) -> Result<(), RecordError> {
    let source = plan.source();
    let mut record = match step {
        step if step.is_for_others() => return Ok(()),
        Step::Init(_) => Record::default(),
        _ => match source.read(FILE)? {
            Some(text) => Record::read(&text)?,
            None => return Ok(()),
        },
    };
    record.follow(step, project);
    if matches!(step, Step::Init(_)) {
        record.foreign = foreign(&record.files, source);
        record.files.retain(|path, _| !record.foreign.contains(path));
    }
    plan.replace(FILE, record.write()?);
    Ok(())
}

/// Applies changes to files in memory.
pub(crate) fn apply(files: &mut BTreeMap<String, String>, changes: Vec<Change>) {
    for change in changes {
        match change.after {
            Some(text) => drop(files.insert(change.path, text)),
            None => drop(files.remove(&change.path)),
        }
    }
}

/// Returns the files that already exist with other content. The plan checks files that must be new, so the returned
/// files are not part of the scaffold.
fn foreign(files: &BTreeMap<String, String>, source: &dyn Source) -> Vec<String> {
    let is_foreign = |(path, text): &(&String, &String)| match source.read(path) {
        Ok(there) => there.is_some_and(|there| there != **text),
        Err(_) => true,
    };
    files.iter().filter(is_foreign).map(|(path, _)| path.clone()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::command::{CreateApi, Edit, Init};

    fn apply(files: &mut BTreeMap<String, String>, step: &Step) {
        let project = files.get(project::FILE).map(|text| Project::read(text).unwrap()).unwrap_or_default();
        let mut plan = Plan::new(files);
        super::plan(step, &project, &mut plan).unwrap();
        let changes = plan.finish().unwrap();
        super::apply(files, changes);
    }

    fn init() -> Step {
        let mut init = Init::new("ship".parse().unwrap());
        (init.domain, init.owner) = (Some("my.domain".parse().unwrap()), Some("Jane: Doe #1".into()));
        Step::Init(init)
    }

    fn api(kind: &str) -> Step {
        let group = Some("crew".parse().unwrap());
        Step::CreateApi(Box::new(CreateApi::new(group, "v1".parse().unwrap(), kind.parse().unwrap())))
    }

    fn record(files: &BTreeMap<String, String>) -> Record {
        Record::read(&files[FILE]).unwrap()
    }

    #[test]
    fn repeated_commands_give_the_same_files() {
        let mut files = BTreeMap::new();
        let edit = Step::Edit(Edit { namespaced: Some(true), ..Edit::default() });
        for step in [init(), api("Captain"), edit, api("Cook")] {
            apply(&mut files, &step);
        }
        let record = record(&files);
        assert_eq!(record.steps.len(), 4);
        let again = record.repeat().unwrap();
        files.remove(FILE);
        assert_eq!(again, files);
        files.remove(project::FILE);
        assert_eq!(record.files, files);
    }

    #[test]
    fn edits_do_not_change_the_record() {
        let mut files = BTreeMap::new();
        apply(&mut files, &init());
        let made = files["src/lib.rs"].clone();
        files.insert("src/lib.rs".into(), made.replace("// +kube", "mod mine;\n// +kube"));
        apply(&mut files, &api("Captain"));
        let kept = &record(&files).files["src/lib.rs"];
        assert!(files["src/lib.rs"].contains("mod mine;") && !kept.contains("mod mine;"));
        assert!(kept.contains("pub mod api;"), "{kept}");
        // Repeating the command, as after an interruption, results in the same record.
        let before = files[FILE].clone();
        files.insert(project::FILE.into(), record(&files).repeat().unwrap()[project::FILE].clone());
        let mut project = Project::read(&files[project::FILE]).unwrap();
        project.resources.clear();
        files.insert(project::FILE.into(), project.write().unwrap());
        apply(&mut files, &api("Captain"));
        assert_eq!(files[FILE], before);
    }

    #[test]
    fn existing_files_are_not_part_of_the_scaffold() {
        let mut files = BTreeMap::from([("README.md".to_owned(), "mine".to_owned())]);
        apply(&mut files, &init());
        let record = record(&files);
        assert_eq!(record.foreign, ["README.md"]);
        assert!(!record.files.contains_key("README.md") && !record.repeat().unwrap().contains_key("README.md"));
    }

    #[test]
    fn a_broken_record_is_an_error() {
        let mut files = BTreeMap::new();
        apply(&mut files, &init());
        files.insert(FILE.into(), "<<<<<<< mine\n".into());
        let mut plan = Plan::new(&files);
        let project = Project::read(&files[project::FILE]).unwrap();
        let error = super::plan(&api("Captain"), &project, &mut plan).unwrap_err().to_string();
        assert!(
            error.contains("cannot read .kubewright/scaffold.yaml") && error.contains("version control"),
            "{error}"
        );
        let text = "cliVersion: x\nsteps:\n- createApi: {version: v1, kind: captain}\nfiles: {}\n";
        let error = Record::read(text).unwrap_err().to_string();
        assert!(error.contains("begin with a capital letter"), "{error}");
    }

    proptest! {
        /// Any text survives a round trip through YAML.
        #[test]
        fn texts_survive(text in "( |\t|\n|#|:|-|'|\"|[a-z{}<>|@%]|ü|\\\\|\r\n){0,40}") {
            let mut record = Record { cli_version: "1".into(), ..Record::default() };
            record.files.insert("a".into(), text.clone());
            record.files.insert("b".into(), format!("{text}\n"));
            let read = Record::read(&record.write().unwrap()).unwrap();
            prop_assert_eq!(read.files, record.files);
        }
    }
}
