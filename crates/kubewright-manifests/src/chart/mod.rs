//! A Helm chart, from the manifests that kustomize renders.
//!
//! Its values are the image, replicas, resources and scheduling of the operator, and whether the CustomResourceDefinitions are part of
//! the chart and kept when it is uninstalled. Names are fixed, since roles and flags refer to objects by name; the namespace is that of
//! the release. Text that looks like a template, as in the description of a field, is escaped.

mod template;

use serde_json::{Value, json};
use thiserror::Error;

use self::template::Template;
use crate::{
    File,
    installer::{InstallerError, manager},
    yaml::{self, YamlError},
};

/// The directory of the chart.
pub const FOLDER: &str = "dist/chart";

/// The name and version of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct About {
    /// The name, which is that of the project.
    pub name: String,
    /// The semantic version.
    pub version: String,
}

impl About {
    /// Creates a value.
    pub fn new(name: &str, version: &str) -> Self {
        Self { name: name.into(), version: version.into() }
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
    let values = values(&mut objects)?;
    let namespaces: Vec<_> = objects.iter().filter(|object| object["kind"] == "Namespace").map(name).collect();
    let mut files = vec![
        file(
            "Chart.yaml",
            yaml::documents([&json!({
                "apiVersion": "v2", "name": about.name, "type": "application", "version": about.version,
                "appVersion": about.version, "description": format!("The {} operator", about.name),
            })])?,
        ),
        file("values.yaml", format!("{VALUES}{}", yaml::documents([&values])?)),
        file(".helmignore", ".git/\n*.tgz\n".into()),
    ];
    // Helm creates the namespace, with --create-namespace.
    for object in objects.iter().filter(|object| object["kind"] != "Namespace") {
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        let template = Template::of(object.clone(), &namespaces);
        let (path, text) = match kind.as_str() {
            "customresourcedefinition" => (format!("templates/crd/{}.yaml", name(object)), template.definition()?),
            _ => (format!("templates/{kind}-{}.yaml", name(object)), template.text()?),
        };
        files.push(file(&path, text));
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// The comment above the values.
const VALUES: &str = "\
# What can be set: helm install --set manager.replicas=2, or --values with a file like this one.
# crd.enable: whether the definitions of the operator's kinds come with the chart; crd.keep: whether they, and so all their objects, stay
# when it goes.
";

/// Extracts the values from the Deployment of the operator, and puts marks in their place.
fn values(objects: &mut [Value]) -> Result<Value, InstallerError> {
    let found = objects.iter_mut().find_map(|object| manager(object).is_some().then_some(object));
    let deployment = found.ok_or(InstallerError::NoManager)?;
    let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    deployment["spec"]["replicas"] = template::VALUE.mark("manager.replicas").into();
    let pod = &mut deployment["spec"]["template"]["spec"];
    let mut place = json!({});
    for (part, empty) in [("nodeSelector", json!({})), ("tolerations", json!([])), ("affinity", json!({}))] {
        place[part] = Some(pod[part].take()).filter(|value| !value.is_null()).unwrap_or(empty);
        pod[part] = template::BLOCK.mark(&format!("manager.{part}")).into();
    }
    let container = manager(deployment).ok_or(InstallerError::NoManager)?;
    let whole = container["image"].take();
    let (repository, tag) = image(whole.as_str().unwrap_or_default());
    let resources = Some(container["resources"].take()).filter(|value| !value.is_null()).unwrap_or_else(|| json!({}));
    container["image"] = template::IMAGE.mark("manager.image").into();
    container["resources"] = template::BLOCK.mark("manager.resources").into();
    container["imagePullPolicy"] = template::VALUE.mark("manager.image.pullPolicy").into();
    let mut manager = json!({
        "image": {"repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"},
        "replicas": replicas, "resources": resources,
    });
    for (part, value) in place.as_object_mut().into_iter().flatten() {
        manager[part] = value.take();
    }
    Ok(json!({"crd": {"enable": true, "keep": true}, "manager": manager}))
}

/// Splits an image into repository and tag. A registry port is not a tag, and a digest belongs to the repository.
fn image(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') && !image.contains('@') => (repository, tag),
        _ => (image, ""),
    }
}

fn name(object: &Value) -> String {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn file(path: &str, text: String) -> File {
    File { path: format!("{FOLDER}/{path}"), text }
}

#[cfg(test)]
mod tests;
