//! What a project was scaffolded as: the file `.kubewright/scaffold.yaml`, on which [`update`](crate::update) rests.
//!
//! It holds each command with what was said to it, and each file as the commands left it, before anyone edited it. The first is what a newer
//! program repeats, the second what its outcome is compared with. Both are kept by carrying out each command a second time, on the files of
//! the record, whatever has become of them in the project.

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    command::{Step, StepError},
    plan::{Plan, PlanError, Source},
    project::{self, Project, ProjectError},
};

/// The file, below a project's folder.
pub const FILE: &str = ".kubewright/scaffold.yaml";

/// What stands above the content.
const HEADER: &str = "\
# Written by kubewright: what was scaffolded here, as it was before it was edited. Leave it as it is, and keep it in version control:
# kubewright alpha update compares it with what a newer kubewright would scaffold.
";

/// What was scaffolded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Record {
    /// The version of kubewright that wrote it last.
    pub cli_version: String,
    /// The commands, in order.
    pub steps: Vec<Step>,
    /// Files that were there before the project was begun, and so aren't ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<String>,
    /// The files, as the commands left them. `PROJECT` isn't among them: it says what is, not what was.
    pub files: BTreeMap<String, String>,
}

/// A record that can't be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It isn't YAML, or its keys don't hold what they should.
    #[error(
        "{FILE} can't be read: {0}. Take it from your version control. If it is lost, delete it: all but kubewright alpha update does without"
    )]
    Syntax(String),
    /// The disk refuses it.
    #[error("{FILE} can't be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It holds what can't be written.
    #[error("{FILE} can't be written: {0}")]
    Unwritable(String),
    /// A command can't be carried out again.
    #[error("`kubewright {step}`, the step {number} of {FILE}, can't be repeated: {why}")]
    Step {
        /// Which it is, counted from 1.
        number: usize,
        /// The command.
        step: &'static str,
        /// Why not.
        why: Box<StepError>,
    },
    /// Its files contradict each other.
    #[error("`kubewright {step}`, the step {number} of {FILE}, can't be repeated: {why}")]
    Plan {
        /// Which it is, counted from 1.
        number: usize,
        /// The command.
        step: &'static str,
        /// Why not.
        why: PlanError,
    },
    /// `PROJECT` as it came out is none.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(text: &str) -> Result<Self, RecordError> {
        serde_saphyr::from_str(text).map_err(|error| RecordError::Syntax(error.to_string()))
    }

    /// The text of the file.
    ///
    /// # Errors
    /// If it holds what YAML can't.
    pub fn write(&self) -> Result<String, RecordError> {
        let content = serde_saphyr::to_string(self).map_err(|error| RecordError::Unwritable(error.to_string()))?;
        Ok(format!("{HEADER}{content}"))
    }

    /// Notes a command, and what comes of it. Where the files of the record lack what it looks for, they get the rest: someone has put
    /// it into the project by hand.
    fn follow(&mut self, step: &Step, project: &Project) {
        let mut plan = Plan::new(&self.files);
        // What stood in the way in the project has been told by now.
        let _ = step.plan(project, &mut plan);
        let changes = plan.possible();
        self.files.extend(changes.into_iter().map(|change| (change.path, change.after)));
        self.files.remove(project::FILE);
        // A command that was killed before it came to PROJECT is run again.
        let same = |last: &Step| serde_json::to_value(last).ok() == serde_json::to_value(step).ok();
        if !self.steps.last().is_some_and(same) {
            self.steps.push(step.clone());
        }
        self.cli_version = env!("CARGO_PKG_VERSION").into();
    }

    /// Has it that the files are as this program scaffolds them.
    pub fn renew(&mut self, mut files: BTreeMap<String, String>) {
        files.remove(project::FILE);
        self.files = files;
        self.cli_version = env!("CARGO_PKG_VERSION").into();
    }

    /// The files as this program would scaffold them: all commands carried out again, from nothing. `PROJECT` is among them.
    ///
    /// # Errors
    /// If one of them can't be.
    pub fn repeat(&self) -> Result<BTreeMap<String, String>, RecordError> {
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        for (index, step) in self.steps.iter().enumerate() {
            let (number, name) = (index + 1, step.name());
            let project = files.get(project::FILE).map(|text| Project::read(text)).transpose()?.unwrap_or_default();
            let mut plan = Plan::new(&files);
            let planned = step.plan(&project, &mut plan);
            planned.map_err(|why| RecordError::Step { number, step: name, why: Box::new(why) })?;
            let changes = plan.finish().map_err(|why| RecordError::Plan { number, step: name, why })?;
            files.extend(changes.into_iter().map(|change| (change.path, change.after)));
        }
        files.retain(|path, _| !self.foreign.contains(path));
        Ok(files)
    }
}

/// Notes a command in the record of the project that a plan is for. A project that was begun without a record gets none.
pub(crate) fn note(step: &Step, project: &Project, plan: &mut Plan<'_>) -> Result<(), RecordError> {
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

/// Those of the files that are there and different: what has to be new is refused by the plan, so the rest is not ours.
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
        step.carry_out(&project, &mut plan).unwrap();
        let changes = plan.finish().unwrap();
        files.extend(changes.into_iter().map(|change| (change.path, change.after)));
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
    fn commands_are_repeated_to_the_same_files() {
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
    fn what_was_edited_is_kept_as_it_was_made() {
        let mut files = BTreeMap::new();
        apply(&mut files, &init());
        let made = files["src/lib.rs"].clone();
        files.insert("src/lib.rs".into(), made.replace("// +kube", "mod mine;\n// +kube"));
        apply(&mut files, &api("Captain"));
        let kept = &record(&files).files["src/lib.rs"];
        assert!(files["src/lib.rs"].contains("mod mine;") && !kept.contains("mod mine;"));
        assert!(kept.contains("pub mod api;"), "{kept}");
        // Run again, as after it was killed: the record is no other.
        let before = files[FILE].clone();
        files.insert(project::FILE.into(), record(&files).repeat().unwrap()[project::FILE].clone());
        let mut project = Project::read(&files[project::FILE]).unwrap();
        project.resources.clear();
        files.insert(project::FILE.into(), project.write().unwrap());
        apply(&mut files, &api("Captain"));
        assert_eq!(files[FILE], before);
    }

    #[test]
    fn what_was_there_before_is_not_ours() {
        let mut files = BTreeMap::from([("README.md".to_owned(), "mine".to_owned())]);
        apply(&mut files, &init());
        let record = record(&files);
        assert_eq!(record.foreign, ["README.md"]);
        assert!(!record.files.contains_key("README.md") && !record.repeat().unwrap().contains_key("README.md"));
    }

    #[test]
    fn a_broken_record_is_told() {
        let mut files = BTreeMap::new();
        apply(&mut files, &init());
        files.insert(FILE.into(), "<<<<<<< mine\n".into());
        let mut plan = Plan::new(&files);
        let project = Project::read(&files[project::FILE]).unwrap();
        let error = api("Captain").carry_out(&project, &mut plan).unwrap_err().to_string();
        assert!(error.contains("scaffold.yaml can't be read") && error.contains("version control"), "{error}");
        let text = "cliVersion: x\nsteps:\n- createApi: {version: v1, kind: captain}\nfiles: {}\n";
        let error = Record::read(text).unwrap_err().to_string();
        assert!(error.contains("begin with a capital letter"), "names are looked at: {error}");
    }

    proptest! {
        /// Texts survive YAML, whatever they begin and end with.
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
