//! Reading and writing.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use thiserror::Error;

use super::Project;

/// The version of the layout.
const VERSION: &str = "3";

/// What stands above the content.
const HEADER: &str = "\
# Written by kubewright: what this project is and what was scaffolded in it.
# Later commands rely on it, so change it with `kubewright edit` rather than by hand.
# Its layout is kubebuilder's: https://book.kubebuilder.io/reference/project-config.html
";

/// A `PROJECT` that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// It isn't YAML, or its keys don't hold what they should.
    #[error("PROJECT can't be read: {0}. Mend it, or take it from your version control")]
    Syntax(String),
    /// It is half written.
    #[error("PROJECT has no {0}. Take the file from your version control, or write the line by hand")]
    Missing(&'static str),
    /// It holds what can't be written again.
    #[error("PROJECT can't be written: {0}. Look at its plugins")]
    Unwritable(String),
    /// It is of a version that this program doesn't know.
    #[error("PROJECT is of version {found:?}, and this kubewright knows version \"3\": {}", remedy(.found))]
    Version {
        /// Its version.
        found: String,
    },
}

/// What to do about a version.
fn remedy(found: &str) -> &'static str {
    let number = found.split('-').next().and_then(|number| number.parse::<u64>().ok());
    match number {
        Some(number) if number > 3 => "use a newer kubewright",
        Some(_) => "that is of a project from before kubebuilder 3, which no kubewright has made",
        None => "it should be a number",
    }
}

impl Project {
    /// Reads a `PROJECT`.
    ///
    /// # Errors
    /// If it isn't one, if its version is another, or if what each project has is missing.
    pub fn read(text: &str) -> Result<Self, ProjectError> {
        let mut content: Map<String, Value> =
            serde_saphyr::from_str(text).map_err(|error| ProjectError::Syntax(error.to_string()))?;
        // A newer one is refused for its version, whatever else is odd about it.
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

    /// The text of the file: keys in order, whatever order they were added in.
    ///
    /// # Errors
    /// If a setting of a plugin is what YAML can't hold.
    pub fn write(&self) -> Result<String, ProjectError> {
        let content = serde_saphyr::to_string(&Sorted(&self.to_json()?))
            .map_err(|error| ProjectError::Unwritable(error.to_string()))?;
        Ok(format!("{HEADER}{content}"))
    }

    /// The same as JSON, as plugins are told it.
    ///
    /// # Errors
    /// If a setting of a plugin is what JSON can't hold.
    pub fn to_json(&self) -> Result<Value, ProjectError> {
        let mut content = serde_json::to_value(self).map_err(|error| ProjectError::Unwritable(error.to_string()))?;
        if let Some(content) = content.as_object_mut() {
            content.insert("version".into(), VERSION.into());
        }
        Ok(content)
    }
}

/// A value whose maps are written in the order of their keys.
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

/// One text or a list of them: `layout` was once a text.
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
