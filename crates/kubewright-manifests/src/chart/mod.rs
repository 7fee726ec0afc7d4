//! A Helm chart, from the manifests that kustomize renders.
//!
//! Its values have the names of kubebuilder's `helm/v2-alpha`: what the operator's Deployment is made of, and which
//! parts the chart has (CustomResourceDefinitions, metrics, webhooks, cert-manager, Prometheus, roles for users). The
//! names of objects begin with a name that follows from that of the release, wherever they are referred to; the
//! namespace is that of the release. Text that looks like a template, as in the description of a field, is escaped.
//! [`keep`] keeps edited values.

mod deployment;
mod keep;
mod part;
mod template;

pub use self::keep::{KeepError, keep};

use serde_json::{Value, json};
use thiserror::Error;

use self::{part::Part, template::Template};
use crate::{
    File,
    installer::InstallerError,
    yaml::{self, YamlError},
};

/// The default directory of the chart.
pub const FOLDER: &str = "dist/chart";

/// The name and version of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct About {
    /// The name, which is that of the project.
    pub name: String,
    /// The semantic version.
    pub version: String,
    /// The directory in the project, with `/` as separator.
    pub folder: String,
}

impl About {
    /// Creates a value.
    pub fn new(name: &str, version: &str) -> Self {
        Self { name: name.into(), version: version.into(), folder: FOLDER.into() }
    }
}

/// A failure to make a chart.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChartError {
    /// The rendered objects cannot be used.
    #[error(transparent)]
    Installer(#[from] InstallerError),
    /// A file cannot be written.
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

/// Returns the files of the chart.
///
/// # Errors
/// Returns an error if there is no Deployment of the operator.
pub fn chart(objects: &[Value], about: &About) -> Result<Vec<File>, ChartError> {
    let mut objects = objects.to_vec();
    let prefix = prefix(&objects).unwrap_or_else(|| about.name.clone());
    part::add_monitor(&mut objects, &prefix);
    let values = values(&mut objects)?;
    let namespaces: Vec<_> = objects.iter().filter(|object| object["kind"] == "Namespace").map(name).collect();
    let mut files = vec![
        ("Chart.yaml".to_owned(), description(about)?),
        ("values.yaml".to_owned(), format!("{VALUES}{}", yaml::documents([&values])?)),
        (".helmignore".to_owned(), ".git/\n*.tgz\n".to_owned()),
        ("templates/_helpers.tpl".to_owned(), HELPERS.to_owned()),
    ];
    // Helm creates the namespace, with --create-namespace.
    for object in objects.iter().filter(|object| object["kind"] != "Namespace") {
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        let template = Template::of(object.clone(), &namespaces, &prefix);
        let (path, text) = match kind.as_str() {
            "customresourcedefinition" => (format!("templates/crd/{}.yaml", name(object)), template.definition()?),
            _ => (format!("templates/{kind}-{}.yaml", name(object)), template.text()?),
        };
        let text = Part::of(object).map_or(text.clone(), |part| part.optional(&text));
        files.push((path, text));
    }
    files.sort();
    let file = |(path, text)| File { path: format!("{}/{path}", about.folder), text };
    Ok(files.into_iter().map(file).collect())
}

/// Returns what the names of all objects begin with, which the kustomization chooses.
fn prefix(objects: &[Value]) -> Option<String> {
    let mut deployments = objects.iter().filter(|object| object["kind"] == "Deployment").map(name);
    deployments.find_map(|name| name.strip_suffix("-controller-manager").map(str::to_owned))
}

fn description(about: &About) -> Result<String, YamlError> {
    yaml::documents([&json!({
        "apiVersion": "v2", "name": about.name, "type": "application", "version": about.version,
        "appVersion": about.version, "description": format!("The {} operator", about.name),
    })])
}

/// The comment above the values.
const VALUES: &str = "\
# What can be set: helm install --set manager.replicas=2, or --values with a file like this one. Edits of this file are kept when the chart is
# generated again; new values are added.
# nameOverride, fullnameOverride: the names of all objects begin with them. manager: the Deployment of the operator; args and env are added to
# those that other values imply. crd.keep: whether the definitions, and so all their objects, stay when the chart is uninstalled.
# rbacHelpers: roles for users of the operator's kinds. webhook.enable=false is for operators that convert no versions.
";

/// The named templates of the chart.
const HELPERS: &str = r#"{{- define "chart.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "chart.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "chart.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "chart.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
"#;

/// Extracts the values from the objects, and puts marks in their place.
fn values(objects: &mut [Value]) -> Result<Value, InstallerError> {
    let mut values = json!({"nameOverride": "", "fullnameOverride": "", "crd": {"enable": true, "keep": true}});
    values["manager"] = deployment::values(objects)?;
    part::values(objects, &mut values);
    Ok(values)
}

fn name(object: &Value) -> String {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
