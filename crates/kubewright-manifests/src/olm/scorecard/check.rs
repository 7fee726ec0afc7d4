//! The built-in tests, by the rules of operator-sdk's image `scorecard-test`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    TestResult, TestStatus,
    descriptors::{spec_descriptors, status_descriptors},
};
use crate::{
    olm::{CSV, Finding, items, text, validate},
    yaml,
};

/// A built-in test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Check {
    /// Each example has a spec, and an API server accepts it.
    BasicCheckSpec,
    /// The bundle has the required files and fields.
    BundleValidation,
    /// The schemas of the definitions have the fields of the examples.
    CrdsHaveValidation,
    /// The owned kinds name the resources that belong to their objects.
    CrdsHaveResources,
    /// Each field of the specs of examples has a descriptor.
    SpecDescriptors,
    /// The kinds of examples with a status have descriptors of it.
    StatusDescriptors,
}

/// What an API server says about a part of a bundle: the examples for [`Check::BasicCheckSpec`], the definitions for
/// [`Check::BundleValidation`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trial {
    /// What it did.
    pub log: Vec<String>,
    /// What it refused.
    pub errors: Vec<String>,
    /// What could not be tried.
    pub suggestions: Vec<String>,
}

/// The objects of a bundle that tests are about.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bundle {
    /// The ClusterServiceVersion.
    pub csv: Value,
    /// The CustomResourceDefinitions.
    pub definitions: Vec<Value>,
    /// The objects of the annotation `alm-examples`, or why it can't be read.
    pub examples: Result<Vec<Value>, String>,
    findings: Vec<Finding>,
}

impl Bundle {
    /// Reads the files of a bundle, by path in its directory.
    ///
    /// # Errors
    /// Returns an error if a file is not YAML, or if there is not exactly one ClusterServiceVersion.
    pub fn read(files: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut objects = Vec::new();
        for (path, content) in files.iter().filter(|(path, _)| path.starts_with("manifests/")) {
            objects.extend(yaml::read(content).map_err(|error| format!("{path}: {error}"))?);
        }
        let mut versions = objects.iter().filter(|object| object["kind"] == CSV).cloned();
        let (Some(csv), None) = (versions.next(), versions.next()) else {
            let count = objects.iter().filter(|object| object["kind"] == CSV).count();
            return Err(format!("manifests: has {count} objects of the kind {CSV}, and needs exactly one"));
        };
        let definitions = objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition");
        Ok(Self {
            definitions: definitions.cloned().collect(),
            examples: examples(&csv),
            csv,
            findings: validate(files, &[]),
        })
    }

    /// Returns the definition of the kind of an object.
    pub fn definition_of(&self, object: &Value) -> Option<&Value> {
        self.definitions.iter().find(|definition| version_of(definition, object).is_some())
    }
}

fn examples(csv: &Value) -> Result<Vec<Value>, String> {
    match text(csv, "/metadata/annotations/alm-examples") {
        "" => Ok(Vec::new()),
        given => serde_json::from_str(given)
            .map_err(|error| format!("metadata.annotations.alm-examples: is not a JSON list of objects: {error}")),
    }
}

/// Returns the version of a definition that an object has.
fn version_of<'a>(definition: &'a Value, object: &Value) -> Option<&'a Value> {
    let (group, version) = text(object, "/apiVersion").rsplit_once('/')?;
    let is_it =
        text(definition, "/spec/group") == group && definition.pointer("/spec/names/kind") == object.get("kind");
    is_it.then(|| items(definition, "/spec/versions").iter().find(|other| text(other, "/name") == version))?
}

/// Returns the words for an example: its place in the list, kind and name.
pub(super) fn place(index: usize, example: &Value) -> String {
    format!("alm-examples[{index}] ({} {})", text(example, "/kind"), text(example, "/metadata/name"))
}

impl Check {
    /// All tests.
    pub const ALL: [Self; 6] = [
        Self::BasicCheckSpec,
        Self::BundleValidation,
        Self::CrdsHaveValidation,
        Self::CrdsHaveResources,
        Self::SpecDescriptors,
        Self::StatusDescriptors,
    ];

    /// Returns the test with a name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|check| check.name() == name)
    }

    /// Returns the name, which is the argument of the image `scorecard-test`.
    pub fn name(self) -> &'static str {
        match self {
            Self::BasicCheckSpec => "basic-check-spec",
            Self::BundleValidation => "olm-bundle-validation",
            Self::CrdsHaveValidation => "olm-crds-have-validation",
            Self::CrdsHaveResources => "olm-crds-have-resources",
            Self::SpecDescriptors => "olm-spec-descriptors",
            Self::StatusDescriptors => "olm-status-descriptors",
        }
    }

    /// Runs the test on a bundle.
    pub fn run(self, bundle: &Bundle, trial: &Trial) -> TestStatus {
        let mut result = TestResult::passing(self.name());
        if self == Self::BundleValidation {
            validation(bundle, trial, &mut result);
            return result.into();
        }
        if self == Self::CrdsHaveResources {
            result.report(format_args!("Loaded ClusterServiceVersion: {}", text(&bundle.csv, "/metadata/name")));
            resources(&bundle.csv, &mut result);
            return result.into();
        }
        let examples = match &bundle.examples {
            Ok(examples) => examples,
            Err(error) if self == Self::BasicCheckSpec => {
                result.fail(error);
                return result.into();
            }
            Err(error) => return TestStatus::error(self.name(), error, ""),
        };
        result.report(format_args!("Loaded {} custom resources from alm-examples", examples.len()));
        match self {
            Self::BasicCheckSpec => specs(examples, trial, &mut result),
            Self::CrdsHaveValidation => schemas(bundle, examples, &mut result),
            Self::SpecDescriptors => spec_descriptors(&bundle.csv, examples, &mut result),
            _ => status_descriptors(&bundle.csv, examples, &mut result),
        }
        result.into()
    }
}

fn add(trial: &Trial, result: &mut TestResult) {
    trial.log.iter().for_each(|line| result.report(line));
    trial.errors.iter().for_each(|error| result.fail(error));
    trial.suggestions.iter().for_each(|suggestion| result.suggest(suggestion));
}

fn validation(bundle: &Bundle, trial: &Trial, result: &mut TestResult) {
    for finding in &bundle.findings {
        if finding.is_warning {
            result.suggest(finding.to_string());
        } else {
            result.fail(finding.to_string());
        }
    }
    add(trial, result);
}

fn specs(examples: &[Value], trial: &Trial, result: &mut TestResult) {
    for (index, example) in examples.iter().enumerate().filter(|(_, example)| example["spec"].is_null()) {
        result.fail(format!("{}: spec: is missing", place(index, example)));
    }
    add(trial, result);
}

fn resources(csv: &Value, result: &mut TestResult) {
    for entry in items(csv, "/spec/customresourcedefinitions/owned") {
        if items(entry, "/resources").is_empty() {
            let (kind, version) = (text(entry, "/kind"), text(entry, "/version"));
            result.fail(format!("owned kind {kind} in version {version}: resources: is empty"));
            let suggestion = format!(
                "List the kinds of objects that belong to a {kind} in spec.customresourcedefinitions.owned[].resources; kubewright generate \
                 kustomize manifests lists those that its controllers own"
            );
            if !result.suggestions.contains(&suggestion) {
                result.suggest(suggestion);
            }
        }
    }
}

/// Checks that the schemas have the fields of the examples. As with operator-sdk, a missing schema is no failure.
fn schemas(bundle: &Bundle, examples: &[Value], result: &mut TestResult) {
    let names: Vec<_> = bundle.definitions.iter().map(|definition| text(definition, "/metadata/name")).collect();
    result.report(format_args!("Loaded CustomResourceDefinitions: {}", names.join(", ")));
    for example in examples {
        let Some(version) = bundle.definitions.iter().find_map(|definition| version_of(definition, example)) else {
            continue;
        };
        let name = format!("{}/{}", text(example, "/kind"), text(version, "/name"));
        let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
            result.suggest(format!("Add a schema to the CustomResourceDefinition of {name}"));
            continue;
        };
        for part in ["spec", "status"] {
            let known = |field: &str| schema["properties"][part]["properties"].get(field).is_some();
            for field in
                example[part].as_object().into_iter().flatten().map(|(field, _)| field).filter(|field| !known(field))
            {
                result.fail(format!("{name}: {part}.{field}: is not in the schema of the CustomResourceDefinition"));
                result.suggest(format!("Add {part}.{field} to the schema of {name}, or remove it from the example"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::olm::scorecard::State;

    /// Returns a bundle with one kind, and one example.
    fn bundle(owned: Value, example: Value) -> Bundle {
        let csv = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "cows.v0.1.0", "annotations": {"alm-examples": json!([example]).to_string()}},
            "spec": {"customresourcedefinitions": {"owned": [owned]}},
        });
        let schema = json!({"type": "object", "properties": {"spec": {"properties": {"size": {"type": "integer"}}}}});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "cows.my.domain"},
            "spec": {
                "group": "my.domain", "names": {"kind": "Cow", "plural": "cows"},
                "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}, {"name": "v2"}],
            },
        });
        let files = [("manifests/csv.yaml", csv), ("manifests/crd.yaml", definition)];
        Bundle::read(&files.map(|(path, object)| (path.into(), object.to_string())).into()).unwrap()
    }

    fn cow(version: &str, spec: Value) -> Value {
        json!({"apiVersion": format!("my.domain/{version}"), "kind": "Cow", "metadata": {"name": "a"}, "spec": spec})
    }

    fn owned() -> Value {
        json!({"name": "cows.my.domain", "kind": "Cow", "version": "v1", "specDescriptors": [{"path": "size"}],
               "resources": [{"kind": "Pod", "version": "v1", "name": ""}]})
    }

    #[track_caller]
    fn check(check: Check, bundle: &Bundle, state: State, errors: &[&str]) -> TestResult {
        let mut status = check.run(bundle, &Trial::default());
        let result = status.results.remove(0);
        assert_eq!(
            (result.name.as_str(), result.state, result.errors.as_slice()),
            (check.name(), state, &errors.iter().map(ToString::to_string).collect::<Vec<_>>()[..])
        );
        result
    }

    #[test]
    fn checks_are_found_by_name() {
        for check in Check::ALL {
            assert_eq!(Check::find(check.name()), Some(check));
        }
        assert_eq!(Check::find("olm-other"), None);
    }

    #[test]
    fn a_bundle_that_has_everything_passes() {
        let bundle = bundle(owned(), cow("v1", json!({"size": 1})));
        for one in Check::ALL.into_iter().filter(|check| *check != Check::BundleValidation) {
            check(one, &bundle, State::Pass, &[]);
        }
        let result = check(Check::CrdsHaveValidation, &bundle, State::Pass, &[]);
        assert!(
            result.log.contains("Loaded 1 custom resources") && result.log.contains("cows.my.domain"),
            "{}",
            result.log
        );
    }

    #[test]
    fn examples_need_a_spec_that_the_api_server_accepts() {
        let without = bundle(owned(), json!({"apiVersion": "my.domain/v1", "kind": "Cow", "metadata": {"name": "a"}}));
        check(Check::BasicCheckSpec, &without, State::Fail, &["alm-examples[0] (Cow a): spec: is missing"]);
        let trial = Trial {
            log: vec!["Created Cow a".into()],
            errors: vec!["alm-examples[0] (Cow a): spec.size: is negative".into()],
            suggestions: vec!["alm-examples[1] (Calf b): was not created".into()],
        };
        let good = bundle(owned(), cow("v1", json!({"size": -1})));
        let result = Check::BasicCheckSpec.run(&good, &trial).results.remove(0);
        assert_eq!((result.state, result.errors, result.suggestions), (State::Fail, trial.errors, trial.suggestions));
        assert!(result.log.ends_with("Created Cow a\n"), "{}", result.log);
    }

    #[test]
    fn examples_that_cant_be_read_fail_the_basic_test_and_end_the_others() {
        let mut bundle = bundle(owned(), cow("v1", json!({})));
        bundle.examples = Err("no JSON".into());
        check(Check::BasicCheckSpec, &bundle, State::Fail, &["no JSON"]);
        for one in [Check::CrdsHaveValidation, Check::SpecDescriptors, Check::StatusDescriptors] {
            check(one, &bundle, State::Error, &["no JSON"]);
        }
        check(Check::CrdsHaveResources, &bundle, State::Pass, &[]);
    }

    #[test]
    fn a_bundle_is_validated() {
        let bundle = bundle(owned(), cow("v1", json!({})));
        let trial = Trial { errors: vec!["cows.my.domain: spec.scope: is missing".into()], ..Trial::default() };
        let result = Check::BundleValidation.run(&bundle, &trial).results.remove(0);
        assert_eq!(result.state, State::Fail);
        assert!(result.errors.contains(&trial.errors[0]), "{:?}", result.errors);
        assert!(
            result.errors.iter().any(|error| error.starts_with("metadata/annotations.yaml: is missing")),
            "{:?}",
            result.errors
        );
        assert!(
            result.suggestions.iter().any(|found| found.contains("spec.minKubeVersion")),
            "{:?}",
            result.suggestions
        );
    }

    #[test]
    fn schemas_need_the_fields_of_examples() {
        let mut example = cow("v1", json!({"size": 1, "colour": "red"}));
        example["status"] = json!({"phase": "grown"});
        let bundle_with = bundle(owned(), example);
        let result = check(
            Check::CrdsHaveValidation,
            &bundle_with,
            State::Fail,
            &[
                "Cow/v1: spec.colour: is not in the schema of the CustomResourceDefinition",
                "Cow/v1: status.phase: is not in the schema of the CustomResourceDefinition",
            ],
        );
        assert_eq!(result.suggestions[0], "Add spec.colour to the schema of Cow/v1, or remove it from the example");
        let without = bundle(owned(), cow("v2", json!({"size": 1})));
        let result = check(Check::CrdsHaveValidation, &without, State::Pass, &[]);
        assert_eq!(result.suggestions, ["Add a schema to the CustomResourceDefinition of Cow/v2"]);
    }

    #[test]
    fn owned_kinds_need_resources() {
        let mut entry = owned();
        entry["resources"] = json!([]);
        let bundle = bundle(entry, cow("v1", json!({})));
        let result = check(
            Check::CrdsHaveResources,
            &bundle,
            State::Fail,
            &["owned kind Cow in version v1: resources: is empty"],
        );
        assert!(result.suggestions[0].starts_with("List the kinds of objects that belong to a Cow"));
    }

    #[test]
    fn a_bundle_has_one_cluster_service_version() {
        let files = |paths: &[&str]| {
            paths.iter().map(|path| (format!("manifests/{path}.yaml"), format!("kind: {CSV}\n"))).collect()
        };
        let said = |paths: &[&str]| Bundle::read(&files(paths)).unwrap_err();
        assert_eq!(said(&[]), format!("manifests: has 0 objects of the kind {CSV}, and needs exactly one"));
        assert_eq!(said(&["a", "b"]), format!("manifests: has 2 objects of the kind {CSV}, and needs exactly one"));
        let broken = BTreeMap::from([("manifests/a.yaml".to_owned(), "a: [".to_owned())]);
        assert!(Bundle::read(&broken).unwrap_err().starts_with("manifests/a.yaml: invalid YAML"));
    }
}
