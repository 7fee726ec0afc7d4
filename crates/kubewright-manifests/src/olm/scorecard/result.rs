//! The results of tests, as JSON and as text.

use std::fmt::{self, Write};

use serde::{Deserialize, Deserializer, Serialize};

use super::{TestConfiguration, VERSION};

/// The result of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum State {
    /// The bundle has what the test requires.
    Pass,
    /// It doesn't.
    Fail,
    /// The test could not be run to its end.
    #[default]
    Error,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Error => "error",
        })
    }
}

/// One result of a test. An image may print several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TestResult {
    /// The name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What the test reports of its run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log: String,
    /// The state.
    pub state: State,
    /// What is wrong.
    #[serde(default, deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// What would be better.
    #[serde(default, deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<String>,
    /// When the test made the result, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
}

impl TestResult {
    /// Creates the result of a test that passes, unless something is found.
    pub fn passing(name: &str) -> Self {
        Self { name: name.into(), state: State::Pass, ..Self::default() }
    }

    /// Adds an error. The test fails.
    pub fn fail(&mut self, error: impl Into<String>) {
        self.state = State::Fail;
        self.errors.push(error.into());
    }

    /// Adds a suggestion. The state stays.
    pub fn suggest(&mut self, suggestion: impl Into<String>) {
        self.suggestions.push(suggestion.into());
    }

    /// Adds a line to the log.
    pub fn report(&mut self, line: impl fmt::Display) {
        let _ = writeln!(self.log, "{line}");
    }
}

/// Reads a list that may be null, as Go writes empty ones.
fn or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// What a test prints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TestStatus {
    /// The results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<TestResult>,
}

impl TestStatus {
    /// Returns the status of a test that could not be run to its end. `log` is what it printed.
    pub fn error(name: &str, error: impl Into<String>, log: &str) -> Self {
        let result =
            TestResult { name: name.into(), log: log.into(), errors: vec![error.into()], ..TestResult::default() };
        result.into()
    }

    /// Reads what a test printed.
    ///
    /// # Errors
    /// Returns an error if the text is not a status in JSON, or has no results.
    pub fn read(text: &str) -> Result<Self, String> {
        let status: Self =
            serde_json::from_str(text).map_err(|error| format!("is not a TestStatus in JSON: {error}"))?;
        if status.results.is_empty() {
            return Err("is a TestStatus without results".into());
        }
        Ok(status)
    }

    /// Returns whether all results are passes.
    pub fn passes(&self) -> bool {
        self.results.iter().all(|result| result.state == State::Pass)
    }
}

impl From<TestResult> for TestStatus {
    fn from(result: TestResult) -> Self {
        Self { results: vec![result] }
    }
}

/// A test and its results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Test {
    kind: &'static str,
    api_version: &'static str,
    /// The test.
    pub spec: TestConfiguration,
    /// Its results; none if it was not run.
    pub status: TestStatus,
}

impl Test {
    /// Creates a test with its results.
    pub fn new(spec: TestConfiguration, status: TestStatus) -> Self {
        Self { kind: "Test", api_version: VERSION, spec, status }
    }
}

/// The tests of a run. The text of [`fmt::Display`] is in the form of operator-sdk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TestList {
    kind: &'static str,
    api_version: &'static str,
    /// The tests, in the order of the configuration.
    pub items: Vec<Test>,
}

impl TestList {
    /// Creates a list.
    pub fn new(items: Vec<Test>) -> Self {
        Self { kind: "TestList", api_version: VERSION, items }
    }
}

impl fmt::Display for TestList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.items.is_empty() {
            return f.write_str("0 tests selected");
        }
        for (index, test) in self.items.iter().enumerate() {
            if index > 0 {
                f.write_char('\n')?;
            }
            test.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", "-".repeat(80))?;
        writeln!(f, "Image:      {}", self.spec.image)?;
        if !self.spec.entrypoint.is_empty() {
            writeln!(f, "Entrypoint: [{}]", self.spec.entrypoint.join(" "))?;
        }
        if !self.spec.labels.is_empty() {
            writeln!(f, "Labels:")?;
        }
        for (key, value) in &self.spec.labels {
            writeln!(f, "\t{key:?}:{value:?}")?;
        }
        if !self.status.results.is_empty() {
            writeln!(f, "Results:")?;
        }
        for result in &self.status.results {
            if !result.name.is_empty() {
                writeln!(f, "\tName: {}", result.name)?;
            }
            writeln!(f, "\tState: {}\n", result.state)?;
            let list = |f: &mut fmt::Formatter<'_>, title: &str, mut lines: Vec<&str>| {
                lines.retain(|line| !line.is_empty());
                if !lines.is_empty() {
                    writeln!(f, "\t{title}:")?;
                }
                lines.into_iter().try_for_each(|line| writeln!(f, "\t\t{line}"))
            };
            list(f, "Suggestions", result.suggestions.iter().map(String::as_str).collect())?;
            list(f, "Errors", result.errors.iter().map(String::as_str).collect())?;
            list(f, "Log", result.log.lines().collect())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> TestList {
        let spec = json!({"image": "example.com/a:v1", "entrypoint": ["a", "b"], "labels": {"suite": "mine"}});
        let mut result = TestResult::passing("b");
        result.report("Looked at it");
        result.suggest("Do more");
        result.fail("spec.size: is missing");
        TestList::new(vec![Test::new(serde_json::from_value(spec).unwrap(), result.into())])
    }

    #[test]
    fn results_are_written_as_json() {
        let result = json!({
            "name": "b", "log": "Looked at it\n", "state": "fail", "errors": ["spec.size: is missing"], "suggestions": ["Do more"],
        });
        let spec = json!({
            "image": "example.com/a:v1", "entrypoint": ["a", "b"], "labels": {"suite": "mine"},
            "storage": {"spec": {"mountPath": {}}},
        });
        let test = json!({"kind": "Test", "apiVersion": VERSION, "spec": spec, "status": {"results": [result]}});
        let expected = json!({"kind": "TestList", "apiVersion": VERSION, "items": [test]});
        assert_eq!(serde_json::to_value(list()).unwrap(), expected);
    }

    #[test]
    fn results_are_written_as_text() {
        let expected = format!(
            "{}\nImage:      example.com/a:v1\nEntrypoint: [a b]\nLabels:\n\t\"suite\":\"mine\"\nResults:\n\tName: b\n\tState: fail\n\n\
             \tSuggestions:\n\t\tDo more\n\tErrors:\n\t\tspec.size: is missing\n\tLog:\n\t\tLooked at it\n",
            "-".repeat(80)
        );
        assert_eq!(list().to_string(), expected);
        assert_eq!(TestList::new(Vec::new()).to_string(), "0 tests selected");
    }

    #[test]
    fn what_tests_print_is_read() {
        let printed = r#"{"results": [{"name": "a", "state": "fail", "errors": ["no"], "suggestions": null, "creationTimestamp": null}]}"#;
        let status = TestStatus::read(printed).unwrap();
        assert_eq!(
            (status.results[0].state, status.results[0].errors.as_slice()),
            (State::Fail, &["no".to_owned()][..])
        );
        assert!(!status.passes());
        for (printed, says) in [
            ("hello", "is not a TestStatus in JSON"),
            ("{}", "is a TestStatus without results"),
            (r#"{"results": [{"state": "good"}]}"#, "unknown variant `good`"),
        ] {
            let said = TestStatus::read(printed).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
    }
}
