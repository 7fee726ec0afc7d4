//! The files of a bundle.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use thiserror::Error;

use super::{ANNOTATION, CSV, base::add_owned, csv, items, text};
use crate::{
    File,
    yaml::{self, YamlError},
};

/// What a bundle is called and where it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BundleOptions {
    /// The name of the package.
    pub package: String,
    /// The semantic version.
    pub version: String,
    /// The channels.
    pub channels: Vec<String>,
    /// The default channel, if it is set.
    pub default_channel: Option<String>,
    /// The directory in the project, with `/` as separator.
    pub folder: String,
    /// The layout of the project, for statistics of catalogs.
    pub layout: String,
}

impl BundleOptions {
    /// Creates options for the channel `alpha` and the directory `bundle`.
    pub fn new(package: &str, version: &str) -> Self {
        let (package, version, channels) = (package.into(), version.into(), vec!["alpha".into()]);
        let (folder, layout) = ("bundle".into(), String::new());
        Self { package, version, channels, default_channel: None, folder, layout }
    }
}

/// A failure to make a bundle.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// There is not exactly one ClusterServiceVersion.
    #[error(
        "config/manifests has {0} objects of the kind ClusterServiceVersion, and needs one: run kubewright generate kustomize manifests"
    )]
    Bases(usize),
    /// There is no Deployment.
    #[error("config/manifests renders no Deployment: restore config/manager from version control")]
    NoDeployment,
    /// The version is not semantic.
    #[error("{0:?} is not a semantic version: use --version with one such as 0.1.0")]
    Version(String),
    /// A file cannot be written.
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

/// Returns whether a text is a semantic version.
pub(super) fn is_semantic(version: &str) -> bool {
    let (version, build) = version.split_once('+').unwrap_or((version, "0"));
    let (number, stage) = version.split_once('-').unwrap_or((version, "a"));
    let is_number = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0')) && !part.is_empty()
    };
    let is_identifier =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let numbers: Vec<_> = number.split('.').collect();
    numbers.len() == 3
        && numbers.into_iter().all(is_number)
        && [stage, build].iter().all(|text| text.split('.').all(is_identifier))
}

/// Returns the files of a bundle, and its Dockerfile beside the directory.
///
/// # Errors
/// Returns an error if there is no base or no Deployment, or if the version is not semantic.
pub fn bundle(objects: &[Value], options: &BundleOptions) -> Result<Vec<File>, BundleError> {
    if !is_semantic(&options.version) {
        return Err(BundleError::Version(options.version.clone()));
    }
    let bases: Vec<_> = objects.iter().filter(|object| object["kind"] == CSV).collect();
    let [base] = bases[..] else { return Err(BundleError::Bases(bases.len())) };
    let definitions: Vec<_> =
        objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition").cloned().collect();
    let owned = served(&definitions);
    let is_sample =
        |object: &&Value| owned.contains(&(text(object, "/apiVersion").to_owned(), text(object, "/kind").to_owned()));
    let samples: Vec<_> = objects.iter().filter(is_sample).map(without_namespace).collect();
    let others: Vec<_> = objects.iter().filter(|object| object["kind"] != CSV && !is_sample(object)).cloned().collect();
    let service_version = complete(base.clone(), &others, &definitions, &samples, options)?;
    let accounts = csv::accounts(&others);
    let mut files = BTreeMap::from([(
        format!("manifests/{}.clusterserviceversion.yaml", options.package),
        yaml::documents([&service_version])?,
    )]);
    for object in others.iter().filter(|object| !csv::is_included(object, &others, &accounts)) {
        let mut object = without_namespace(object);
        if object["kind"] == "CustomResourceDefinition"
            && let Some(conversion) =
                object.pointer_mut("/spec/conversion/webhook/clientConfig/service").and_then(Value::as_object_mut)
        {
            // OLM sets it.
            conversion.remove("caBundle");
        }
        files.insert(format!("manifests/{}", file_name(&object)), yaml::documents([&object])?);
    }
    files.insert("metadata/annotations.yaml".into(), annotations(options));
    files.insert("tests/scorecard/config.yaml".into(), SCORECARD.into());
    let in_folder = files.into_iter().map(|(path, text)| File { path: format!("{}/{path}", options.folder), text });
    let mut all: Vec<_> = in_folder.collect();
    all.push(File { path: "bundle.Dockerfile".into(), text: dockerfile(options) });
    Ok(all)
}

/// Completes the base.
fn complete(
    mut csv: Value,
    others: &[Value],
    definitions: &[Value],
    samples: &[Value],
    options: &BundleOptions,
) -> Result<Value, BundleError> {
    let webhooks = csv::webhooks(others);
    let accounts = csv::accounts(others);
    let deployments = csv::deployments(others, !webhooks.is_empty());
    if deployments.is_empty() {
        return Err(BundleError::NoDeployment);
    }
    add_owned(&mut csv, definitions);
    csv["metadata"]["name"] = format!("{}.v{}", options.package, options.version).into();
    csv["metadata"]["namespace"] = "placeholder".into();
    let examples = serde_json::to_string_pretty(samples).unwrap_or_default();
    csv["metadata"]["annotations"]["alm-examples"] = examples.into();
    csv["metadata"]["annotations"]["operators.operatorframework.io/builder"] = BUILDER.into();
    if !options.layout.is_empty() {
        csv["metadata"]["annotations"]["operators.operatorframework.io/project_layout"] =
            options.layout.as_str().into();
    }
    let spec = &mut csv["spec"];
    spec["version"] = options.version.as_str().into();
    spec["install"]["strategy"] = "deployment".into();
    let install = &mut spec["install"]["spec"];
    install["deployments"] = deployments.into();
    for (field, binding) in [("permissions", "RoleBinding"), ("clusterPermissions", "ClusterRoleBinding")] {
        let permissions = csv::permissions(others, &accounts, binding);
        if let Some(install) = install.as_object_mut() {
            install.remove(field);
        }
        if !permissions.is_empty() {
            install[field] = permissions.into();
        }
    }
    if webhooks.is_empty() {
        spec.as_object_mut().and_then(|spec| spec.remove("webhookdefinitions"));
    } else {
        spec["webhookdefinitions"] = webhooks.into();
    }
    Ok(csv)
}

/// The program that made a bundle.
const BUILDER: &str = concat!("kubewright-", env!("CARGO_PKG_VERSION"));

/// Returns the versions and kinds of definitions.
fn served(definitions: &[Value]) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for definition in definitions {
        for version in items(definition, "/spec/versions") {
            let api = format!("{}/{}", text(definition, "/spec/group"), text(version, "/name"));
            all.insert((api, text(definition, "/spec/names/kind").to_owned()));
        }
    }
    all
}

/// Returns an object without its namespace, which OLM chooses.
fn without_namespace(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    object
}

fn file_name(object: &Value) -> String {
    let (name, kind) = (text(object, "/metadata/name"), text(object, "/kind").to_lowercase());
    if kind == "customresourcedefinition" {
        return format!("{}_{}.yaml", text(object, "/spec/group"), text(object, "/spec/names/plural"));
    }
    format!("{name}_{}_{kind}.yaml", text(object, "/apiVersion").replace('/', "_"))
}

/// Returns the labels of a bundle.
fn labels(options: &BundleOptions) -> Vec<(String, String)> {
    let mut labels: Vec<(String, String)> = [
        ("mediatype.v1", "registry+v1"),
        ("manifests.v1", "manifests/"),
        ("metadata.v1", "metadata/"),
        ("package.v1", options.package.as_str()),
        ("channels.v1", &options.channels.join(",")),
    ]
    .map(|(name, value)| (format!("{ANNOTATION}{name}"), value.to_owned()))
    .into();
    if let Some(default) = &options.default_channel {
        labels.push((format!("{ANNOTATION}channel.default.v1"), default.clone()));
    }
    let mut add =
        |name: &str, value: &str| labels.push((format!("operators.operatorframework.io.{name}"), value.to_owned()));
    add("metrics.builder", BUILDER);
    add("metrics.mediatype.v1", "metrics+v1");
    if !options.layout.is_empty() {
        add("metrics.project_layout", &options.layout);
    }
    add("test.config.v1", "tests/scorecard/");
    add("test.mediatype.v1", "scorecard+v1");
    labels
}

fn annotations(options: &BundleOptions) -> String {
    let lines: String = labels(options).into_iter().map(|(name, value)| format!("  {name}: {value}\n")).collect();
    format!("annotations:\n{lines}")
}

fn dockerfile(options: &BundleOptions) -> String {
    let labels: String = labels(options).into_iter().map(|(name, value)| format!("LABEL {name}={value}\n")).collect();
    let folder = &options.folder;
    format!(
        "FROM scratch\n\n{labels}\nCOPY {folder}/manifests /manifests/\nCOPY {folder}/metadata /metadata/\nCOPY {folder}/tests/scorecard /tests/scorecard/\n"
    )
}

/// The configuration of operator-sdk's scorecard, with its images.
const SCORECARD: &str = "\
apiVersion: scorecard.operatorframework.io/v1alpha3
kind: Configuration
metadata:
  name: config
stages:
- parallel: true
  tests:
  - entrypoint: [scorecard-test, basic-check-spec]
    image: quay.io/operator-framework/scorecard-test:v1.42.0
    labels: {suite: basic, test: basic-check-spec-test}
  - entrypoint: [scorecard-test, olm-bundle-validation]
    image: quay.io/operator-framework/scorecard-test:v1.42.0
    labels: {suite: olm, test: olm-bundle-validation-test}
  - entrypoint: [scorecard-test, olm-crds-have-validation]
    image: quay.io/operator-framework/scorecard-test:v1.42.0
    labels: {suite: olm, test: olm-crds-have-validation-test}
  - entrypoint: [scorecard-test, olm-crds-have-resources]
    image: quay.io/operator-framework/scorecard-test:v1.42.0
    labels: {suite: olm, test: olm-crds-have-resources-test}
  - entrypoint: [scorecard-test, olm-spec-descriptors]
    image: quay.io/operator-framework/scorecard-test:v1.42.0
    labels: {suite: olm, test: olm-spec-descriptors-test}
  - entrypoint: [scorecard-test, olm-status-descriptors]
    image: quay.io/operator-framework/scorecard-test:v1.42.0
    labels: {suite: olm, test: olm-status-descriptors-test}
storage:
  spec:
    mountPath: {}
";
