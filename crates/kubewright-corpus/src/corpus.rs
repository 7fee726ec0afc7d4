//! The files of a corpus.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{answer::Answer, change::Change};

/// The cases of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Corpus {
    /// The file's name without extension, such as `pod`.
    pub name: String,
    /// The first line.
    pub header: Header,
    /// The further lines.
    pub cases: Vec<Case>,
}

/// The first line of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The version of the recorded API server, such as `v1.36.3`. Empty before the recording.
    #[serde(default)]
    pub server: String,
    /// The path of the collection.
    pub path: String,
    /// A valid object.
    pub base: Value,
}

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The name, unique in its file.
    pub case: String,
    /// The verb.
    #[serde(default, skip_serializing_if = "Verb::is_create")]
    pub verb: Verb,
    /// The object's difference from the valid one.
    #[serde(flatten)]
    pub change: Change,
    /// The recorded answer. Absent before the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

/// The verb of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// The object is created, as a dry run.
    #[default]
    Create,
    /// The valid object is created, read, changed, and updated, as a dry run.
    Update,
}

impl Verb {
    fn is_create(&self) -> bool {
        *self == Self::Create
    }
}

impl Corpus {
    /// Reads a file.
    ///
    /// # Errors
    /// Returns an error if the file can't be read or a line can't be parsed.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let mut lines = text.lines();
        let place = |number: usize| format!("{}:{number}", path.display());
        let header = serde_json::from_str(lines.next().unwrap_or_default()).with_context(|| place(1))?;
        let cases: Vec<Case> = lines
            .enumerate()
            .map(|(index, line)| serde_json::from_str(line).with_context(|| place(index + 2)))
            .collect::<Result<_>>()?;
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let corpus = Self { name, header, cases };
        corpus.check_names()?;
        Ok(corpus)
    }

    /// Reads all files of a directory, in the order of their names.
    ///
    /// # Errors
    /// Returns an error if a file can't be read.
    pub fn read_all(directory: &Path) -> Result<Vec<Self>> {
        let entries = std::fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// Writes the file into a directory.
    ///
    /// # Errors
    /// Returns an error if the file can't be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        self.check_names()?;
        let mut text = serde_json::to_string(&self.header)? + "\n";
        for case in &self.cases {
            text += &(serde_json::to_string(case)? + "\n");
        }
        let path = directory.join(format!("{}.jsonl", self.name));
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    fn check_names(&self) -> Result<()> {
        let mut names: Vec<_> = self.cases.iter().map(|case| case.case.as_str()).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            ensure!(pair[0] != pair[1], "{}: two cases are named {:?}", self.name, pair[0]);
        }
        Ok(())
    }
}
