//! A single file that installs an operator, from the manifests that kustomize renders.

use serde_json::Value;
use thiserror::Error;

use crate::{
    File,
    yaml::{self, YamlError},
};

/// The name of the container of the operator in the scaffold.
const MANAGER: &str = "manager";

/// A failure to make an installer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InstallerError {
    /// The rendered text is not YAML, or an object cannot be written.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// There is no Deployment with the container.
    #[error(
        "config/default has no Deployment with a container {MANAGER:?}: restore config/manager from version control"
    )]
    NoManager,
}

/// Kinds that other objects need, which are first, and kinds that block others without a running operator, which are
/// last.
const FIRST: [&str; 7] = [
    "Namespace",
    "CustomResourceDefinition",
    "ServiceAccount",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
];
const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Parses rendered objects, and sorts them so that they can be applied in order: versions of kustomize differ in
/// theirs.
///
/// # Errors
/// Returns an error if the text is not YAML.
pub fn rendered(text: &str) -> Result<Vec<Value>, InstallerError> {
    let mut objects = yaml::read(text)?;
    objects.retain(|object| !object.is_null());
    objects.sort_by_cached_key(|object| {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = text("/kind");
        (rank(&kind), kind, text("/metadata/namespace"), text("/metadata/name"))
    });
    Ok(objects)
}

/// Returns the position of a kind. Workloads are after other kinds, which they may read.
fn rank(kind: &str) -> usize {
    let place = |kinds: &[&str]| kinds.iter().position(|other| *other == kind);
    match (place(&FIRST), place(&LAST)) {
        (Some(place), _) => place,
        (_, Some(place)) => FIRST.len() + 2 + place,
        _ if ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod"].contains(&kind) => FIRST.len() + 1,
        _ => FIRST.len(),
    }
}

/// Replaces the image of the operator, if one is given.
///
/// # Errors
/// Returns an error if there is no Deployment of the operator.
pub fn with_image(mut objects: Vec<Value>, image: Option<&str>) -> Result<Vec<Value>, InstallerError> {
    let managers = objects.iter_mut().filter_map(manager).map(|container| {
        if let Some(image) = image {
            container["image"] = image.into();
        }
    });
    if managers.count() == 0 {
        return Err(InstallerError::NoManager);
    }
    Ok(objects)
}

/// Returns `dist/install.yaml`, with the objects in their order.
///
/// # Errors
/// Returns an error if an object cannot be written.
pub fn installer(objects: &[Value]) -> Result<File, InstallerError> {
    Ok(File { path: "dist/install.yaml".into(), text: yaml::documents(objects)? })
}

/// Returns the container of the operator, if the object is its Deployment.
pub(crate) fn manager(object: &mut Value) -> Option<&mut Value> {
    let containers = (object["kind"] == "Deployment").then(|| object.pointer_mut("/spec/template/spec/containers"));
    containers??.as_array_mut()?.iter_mut().find(|container| container["name"] == MANAGER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENDERED: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: cow-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cow-controller-manager}
spec:
  template:
    spec:
      containers:
      - {name: proxy, image: proxy}
      - {name: manager, image: 'controller:latest'}
";

    #[test]
    fn only_the_image_of_the_operator_is_replaced() {
        let objects = rendered(RENDERED).unwrap();
        let text = |image| installer(&with_image(objects.clone(), image).unwrap()).unwrap().text;
        let (text, as_it_was) = (text(Some("registry/me/cow:v1")), text(None));
        assert!(text.contains("image: registry/me/cow:v1") && text.contains("image: proxy"), "{text}");
        assert!(!text.contains("controller:latest"), "{text}");
        assert!(as_it_was.contains("image: controller:latest"), "{as_it_was}");
        assert_eq!(rendered(&text).unwrap().len(), 2);
    }

    #[test]
    fn objects_are_sorted_by_kind() {
        let kinds = |order: &[&str]| {
            let text: Vec<_> = order.iter().map(|kind| format!("kind: {kind}\nmetadata: {{name: a}}\n")).collect();
            let objects = rendered(&text.join("---\n")).unwrap();
            objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let expected = ["Namespace", "CustomResourceDefinition", "ConfigMap", "Service", "Deployment"];
        let last = "ValidatingWebhookConfiguration";
        let expected: Vec<_> = expected.into_iter().chain([last]).collect();
        let backwards: Vec<_> = expected.iter().rev().copied().collect();
        assert_eq!(kinds(&backwards), expected);
        assert_eq!(kinds(&expected), expected);
    }

    #[test]
    fn objects_without_an_operator_are_an_error() {
        let error = with_image(rendered("kind: Namespace\n").unwrap(), None).unwrap_err().to_string();
        assert!(error.contains("restore config/manager from version control"), "{error}");
        assert!(rendered("a: [").is_err());
    }
}
