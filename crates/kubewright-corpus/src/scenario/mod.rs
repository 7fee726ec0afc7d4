//! Sequences of requests in a namespace of their own, and the recorded answers.
//!
//! `scenarios/*.yaml` defines them ([`define`]). A recorded scenario is a file of JSON lines: a header, and a line for
//! each request with its answer, from which everything is removed that differs between two servers (`normal`).

mod define;
mod normal;
mod run;

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{define::define, run::run};

/// A sequence of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The file's name without extension.
    pub name: String,
    /// The version of the recorded API server. Empty before the recording.
    pub server: String,
    /// The requests, in order.
    pub steps: Vec<Step>,
}

/// The first line of a recorded scenario.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    server: String,
}

/// A request. In its path, headers and body, `{ns}` stands for the namespace of the scenario, and `{name}` for what an
/// earlier step saved by that name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// The name, unique in its scenario; by default the method and path.
    pub step: String,
    /// The method and path.
    pub send: String,
    /// The value of `Accept`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub accept: String,
    /// The value of `Content-Type`, or `json`, `merge`, `strategic`, `apply` or `yaml`. By default JSON if there is a
    /// body.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// Further headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub body: Value,
    /// The body as text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The pointers of values in the answer that later steps use, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub save: BTreeMap<String, String>,
    /// The code for which the request is repeated. A real API server needs some time until it serves a custom kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<u16>,
    /// The pointers of the parts of the body that are recorded; by default the whole body.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// The answer. Absent before the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Reply>,
}

/// What an API server answered, without anything that differs between two servers or two runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// The HTTP code.
    pub code: u16,
    /// The headers that are recorded, in lower case: `content-type` other than JSON, `allow`, `location`,
    /// `retry-after`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The warnings, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The body: a JSON value, a list of the events of a watch, or text.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

impl Scenario {
    /// Reads a recorded scenario.
    ///
    /// # Errors
    /// Returns an error if the file can't be read or a line can't be parsed.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let mut lines = text.lines().enumerate();
        let place = |number: usize| format!("{}:{}", path.display(), number + 1);
        let header: Header = serde_json::from_str(lines.next().unwrap_or_default().1).with_context(|| place(0))?;
        let steps = lines
            .map(|(number, line)| serde_json::from_str(line).with_context(|| place(number)))
            .collect::<Result<_>>()?;
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        Ok(Self { name, server: header.server, steps })
    }

    /// Reads all recorded scenarios of a directory, in the order of their names.
    ///
    /// # Errors
    /// Returns an error if a file can't be read.
    pub fn read_all(directory: &Path) -> Result<Vec<Self>> {
        files(directory, "jsonl")?.iter().map(|path| Self::read(path)).collect()
    }

    /// Writes the scenario into a directory.
    ///
    /// # Errors
    /// Returns an error if the file can't be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let mut text = serde_json::to_string(&Header { server: self.server.clone() })? + "\n";
        for step in &self.steps {
            text += &(serde_json::to_string(step)? + "\n");
        }
        std::fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        let path = directory.join(format!("{}.jsonl", self.name));
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    fn check_names(&self) -> Result<()> {
        let mut names = std::collections::BTreeSet::new();
        for step in &self.steps {
            ensure!(names.insert(&step.step), "{}: two steps are named {:?}", self.name, step.step);
        }
        Ok(())
    }
}

/// Returns the files of a directory with an extension, in the order of their names.
pub(crate) fn files(directory: &Path, extension: &str) -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    Ok(paths)
}
