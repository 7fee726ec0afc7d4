//! Parsing and writing `PROJECT`.

use kubewright_apimachinery::decode::yaml_file;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use thiserror::Error;

use super::Project;

/// The version of the file format.
const VERSION: &str = "3";

/// The comment above the content.
const HEADER: &str = "\
# Written by kubewright: what this project is and what was scaffolded in it.
# Later commands rely on it, so change it with `kubewright edit` rather than by hand.
# Its layout is kubebuilder's: https://book.kubebuilder.io/reference/project-config.html
";

/// An error in a `PROJECT` file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// The file is not valid YAML, or has unexpected values.
    #[error("cannot read PROJECT: {0}; fix it or restore it from version control")]
    Syntax(String),
    /// A required key is missing.
    #[error("PROJECT has no {0}: restore the file from version control, or add the line by hand")]
    Missing(&'static str),
    /// The content cannot be written.
    #[error("cannot write PROJECT: {0}; check its plugins section")]
    Unwritable(String),
    /// The format version is not supported.
    #[error("PROJECT has version {found:?}, and this kubewright supports version \"3\": {}", version_hint(.found))]
    Version {
        /// The version in the file.
        found: String,
    },
}

/// Returns a hint for an unsupported version.
fn version_hint(found: &str) -> &'static str {
    let number = found.split('-').next().and_then(|number| number.parse::<u64>().ok());
    match number {
        Some(number) if number > 3 => "use a newer kubewright",
        Some(_) => "that is of a project from before kubebuilder 3, which no kubewright has made",
        None => "it should be a number",
    }
}

impl Project {
    /// Parses a `PROJECT` file.
    ///
    /// # Errors
    /// Returns an error for invalid YAML, an unsupported version, or a missing key.
    pub fn read(text: &str) -> Result<Self, ProjectError> {
        let content = yaml_file(text).map_err(|error| ProjectError::Syntax(error.to_string()))?;
        let mut content: Map<String, Value> =
            serde_json::from_value(content).map_err(|error| ProjectError::Syntax(error.to_string()))?;
        // The version is checked first, since other versions may have other keys.
        let found = match content.remove("version") {
            None | Some(Value::Null) => return Err(ProjectError::Missing("version")),
            Some(Value::String(version)) => version,
            Some(other) => other.to_string(),
        };
        if found != VERSION {
            return Err(ProjectError::Version { found });
        }
        let project: Self =
            serde_json::from_value(Value::Object(content)).map_err(|error| ProjectError::Syntax(error.to_string()))?;
        if project.project_name.is_empty() {
            return Err(ProjectError::Missing("projectName"));
        }
        if project.resources.iter().any(|resource| resource.kind.is_empty() || resource.version.is_empty()) {
            return Err(ProjectError::Missing("kind or version of one of its resources"));
        }
        Ok(project)
    }

    /// Returns the content of the file, with sorted keys.
    ///
    /// # Errors
    /// Returns an error if a setting of a plugin cannot be written as YAML.
    pub fn write(&self) -> Result<String, ProjectError> {
        let content = serde_saphyr::to_string(&Sorted(&self.to_json()?))
            .map_err(|error| ProjectError::Unwritable(error.to_string()))?;
        Ok(format!("{HEADER}{content}"))
    }

    /// Returns the content as JSON, for plugins.
    ///
    /// # Errors
    /// Returns an error if a setting of a plugin cannot be written as JSON.
    pub fn to_json(&self) -> Result<Value, ProjectError> {
        let mut content = serde_json::to_value(self).map_err(|error| ProjectError::Unwritable(error.to_string()))?;
        if let Some(content) = content.as_object_mut() {
            content.insert("version".into(), VERSION.into());
        }
        Ok(content)
    }
}

/// A wrapper that serializes maps with sorted keys.
struct Sorted<'a>(&'a Value);

impl serde::Serialize for Sorted<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().map(|(key, value)| (key, Sorted(value))).collect();
                entries.sort_by_key(|(key, _)| *key);
                serializer.collect_map(entries)
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Sorted)),
            other => other.serialize(serializer),
        }
    }
}

/// Deserializes a string or a list of strings, since `layout` was a string in old versions.
pub(super) fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}
