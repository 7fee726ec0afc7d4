//! The configuration of the tests of a bundle.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::VERSION;
use crate::{
    olm::{items, text},
    yaml,
};

/// The name of the file of a configuration.
const FILE: &str = "config.yaml";
/// The directory of the configuration, unless the metadata name another.
const DIRECTORY: &str = "tests/scorecard";
/// The annotation of a bundle that names the directory of its configuration.
const ANNOTATION: &str = "operators.operatorframework.io.test.config.v1";

/// The tests of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Configuration {
    /// The stages, which run one after the other.
    pub stages: Vec<Stage>,
    /// The service account of the tests' pods. `None` for the one called `default`.
    pub service_account: Option<String>,
}

/// Tests that run together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stage {
    /// Whether the tests run at the same time, and not one after the other.
    pub parallel: bool,
    /// The tests.
    pub tests: Vec<TestConfiguration>,
}

/// A test: an image, and what it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TestConfiguration {
    /// The image.
    pub image: String,
    /// A name that tells the test from others of its image; may be empty.
    #[serde(rename = "uniqueID", default, skip_serializing_if = "String::is_empty")]
    pub unique_id: String,
    /// The command and its arguments. Empty for those of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// The labels, by which tests are selected.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where the test writes files.
    #[serde(default)]
    pub storage: Storage,
}

impl TestConfiguration {
    /// Returns the name of a test for messages: its label `test`, or its entrypoint, or its image.
    pub fn name(&self) -> String {
        match self.labels.get("test") {
            Some(name) => name.clone(),
            None if self.entrypoint.is_empty() => self.image.clone(),
            None => self.entrypoint.join(" "),
        }
    }
}

/// A directory of a test's pod whose files are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Storage {
    /// The settings.
    #[serde(default)]
    spec: StorageSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageSpec {
    #[serde(default)]
    mount_path: MountPath,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct MountPath {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    path: String,
}

impl Storage {
    /// Returns the path of the directory in the pod; empty if no files are kept.
    pub fn path(&self) -> &str {
        &self.spec.mount_path.path
    }
}

/// A configuration that can't be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// The text is not YAML.
    #[error(transparent)]
    Yaml(#[from] yaml::YamlError),
    /// A field is wrong: its path, and what is wrong.
    #[error("{0}: {1}")]
    Field(String, String),
}

fn wrong(field: impl Into<String>, message: impl Into<String>) -> ConfigurationError {
    ConfigurationError::Field(field.into(), message.into())
}

impl Configuration {
    /// Reads a configuration. The storage of the whole is that of tests that have none.
    ///
    /// # Errors
    /// Returns an error if the text is not a configuration of a known version, or if a field has another type than it
    /// should.
    pub fn read(content: &str) -> Result<Self, ConfigurationError> {
        let documents = yaml::read(content)?;
        let configuration = documents.first().cloned().unwrap_or_default();
        if text(&configuration, "/kind") != "Configuration" {
            return Err(wrong("kind", format!("is {:?}, and must be Configuration", text(&configuration, "/kind"))));
        }
        if text(&configuration, "/apiVersion") != VERSION {
            let there = text(&configuration, "/apiVersion");
            return Err(wrong("apiVersion", format!("is {there:?}, and must be {VERSION}")));
        }
        let common: Storage = part(&configuration["storage"], "storage")?;
        let account: Option<String> = part(&configuration["serviceaccount"], "serviceaccount")?;
        let mut stages = Vec::new();
        for (index, stage) in items(&configuration, "/stages").iter().enumerate() {
            let field = format!("stages[{index}]");
            let parallel: Option<bool> = part(&stage["parallel"], &format!("{field}.parallel"))?;
            let mut tests = Vec::new();
            for (number, test) in items(stage, "/tests").iter().enumerate() {
                tests.push(read_test(test, &format!("{field}.tests[{number}]"), &common)?);
            }
            stages.push(Stage { parallel: parallel.unwrap_or_default(), tests });
        }
        if stages.iter().all(|stage| stage.tests.is_empty()) {
            return Err(wrong("stages", "have no tests"));
        }
        Ok(Self { stages, service_account: account.filter(|name| !name.is_empty()) })
    }
}

fn read_test(test: &Value, field: &str, common: &Storage) -> Result<TestConfiguration, ConfigurationError> {
    let at = |part: &str| format!("{field}.{part}");
    let image = text(test, "/image");
    if image.is_empty() {
        return Err(wrong(at("image"), "is missing"));
    }
    let entrypoint: Option<Vec<String>> = part(&test["entrypoint"], &at("entrypoint"))?;
    let labels: Option<BTreeMap<String, String>> = part(&test["labels"], &at("labels"))?;
    let mut storage: Storage = part(&test["storage"], &at("storage"))?;
    if storage.path().is_empty() {
        storage = common.clone();
    }
    if !storage.path().is_empty() && !storage.path().starts_with('/') {
        return Err(wrong(at("storage.spec.mountPath.path"), format!("{:?} must begin with /", storage.path())));
    }
    Ok(TestConfiguration {
        image: image.into(),
        unique_id: text(test, "/uniqueID").into(),
        entrypoint: entrypoint.unwrap_or_default(),
        labels: labels.unwrap_or_default(),
        storage,
    })
}

/// Reads a part of a configuration; null is the default.
fn part<T: Default + for<'de> Deserialize<'de>>(value: &Value, field: &str) -> Result<T, ConfigurationError> {
    if value.is_null() {
        return Ok(T::default());
    }
    serde_json::from_value(value.clone()).map_err(|error| wrong(field, error.to_string()))
}

/// Returns the path of the configuration in the directory of a bundle, from the text of `metadata/annotations.yaml`.
pub fn configuration_path(annotations: Option<&str>) -> String {
    let documents = annotations.and_then(|text| yaml::read(text).ok()).unwrap_or_default();
    let annotations = documents.first().map(|metadata| metadata["annotations"].clone()).unwrap_or_default();
    let directory = annotations[ANNOTATION].as_str().unwrap_or(DIRECTORY);
    format!("{}/{FILE}", directory.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_stages_of_tests() {
        let text = "\
apiVersion: scorecard.operatorframework.io/v1alpha3
kind: Configuration
serviceaccount: tester
stages:
- parallel: true
  tests:
  - image: example.com/one
    entrypoint: [one, --fast]
    labels: {suite: mine, test: first}
- tests:
  - image: example.com/two
    uniqueID: second
    storage: {spec: {mountPath: {path: /own}}}
storage: {spec: {mountPath: {path: /files}}}
";
        let read = Configuration::read(text).unwrap();
        assert_eq!((read.stages.len(), read.service_account.as_deref()), (2, Some("tester")));
        assert!(read.stages[0].parallel && !read.stages[1].parallel);
        let (first, second) = (&read.stages[0].tests[0], &read.stages[1].tests[0]);
        assert_eq!((first.entrypoint.join(" "), first.storage.path()), ("one --fast".into(), "/files"));
        assert_eq!(
            (first.name(), second.name(), second.storage.path()),
            ("first".into(), "example.com/two".into(), "/own")
        );
    }

    #[test]
    fn mistakes_are_reported_with_their_field() {
        let head = format!("apiVersion: {VERSION}\nkind: Configuration\n");
        for (text, says) in [
            ("kind: Other".to_owned(), "kind: is \"Other\", and must be Configuration"),
            ("kind: Configuration".to_owned(), "apiVersion: is \"\", and must be scorecard"),
            (head.clone(), "stages: have no tests"),
            (format!("{head}stages: [{{tests: [{{entrypoint: [a]}}]}}]"), "stages[0].tests[0].image: is missing"),
            (
                format!("{head}stages: [{{tests: [{{image: a, entrypoint: b}}]}}]"),
                "stages[0].tests[0].entrypoint: invalid type: string \"b\", expected a sequence",
            ),
            (format!("{head}stages: [{{parallel: often, tests: [{{image: a}}]}}]"), "stages[0].parallel: invalid type"),
            (
                format!("{head}stages: [{{tests: [{{image: a, storage: {{spec: {{mountPath: {{path: b}}}}}}}}]}}]"),
                "stages[0].tests[0].storage.spec.mountPath.path: \"b\" must begin with /",
            ),
            ("a: [".to_owned(), "invalid YAML"),
        ] {
            let said = Configuration::read(&text).unwrap_err().to_string();
            assert!(said.starts_with(says), "{says:?} is not {said:?}");
        }
    }

    #[test]
    fn the_metadata_name_the_directory() {
        assert_eq!(configuration_path(None), "tests/scorecard/config.yaml");
        let other = format!("annotations: {{{ANNOTATION}: other/}}");
        assert_eq!(configuration_path(Some(&other)), "other/config.yaml");
    }
}
