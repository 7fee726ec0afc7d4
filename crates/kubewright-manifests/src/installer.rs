//! One file to install by: what kustomize renders of a project, with the image that is to run.

use serde_json::Value;
use thiserror::Error;

use crate::{
    File,
    yaml::{self, YamlError},
};

/// The container that the operator runs in, by the name that the scaffold gives it.
const MANAGER: &str = "manager";

/// Why there is nothing to install.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InstallerError {
    /// What was rendered is no list of objects, or they can't be written.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// No Deployment has the container.
    #[error(
        "what config/default renders has no Deployment with a container {MANAGER:?}: take config/manager from your version control"
    )]
    NoManager,
}

/// Kinds that others need, which go first, and kinds that stop others while nobody answers for them, which go last.
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

/// The objects that kustomize has rendered, in the order in which they can be applied: versions of kustomize differ in theirs.
///
/// # Errors
/// If the text is no YAML.
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

/// Where a kind's turn is. Of those between, what runs comes after what it reads.
fn rank(kind: &str) -> usize {
    let place = |kinds: &[&str]| kinds.iter().position(|other| *other == kind);
    match (place(&FIRST), place(&LAST)) {
        (Some(place), _) => place,
        (_, Some(place)) => FIRST.len() + 2 + place,
        _ if ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod"].contains(&kind) => FIRST.len() + 1,
        _ => FIRST.len(),
    }
}

/// The objects with this image in the place of the operator's, if one is given.
///
/// # Errors
/// If the operator isn't among them.
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

/// `dist/install.yaml`: the objects in their order.
///
/// # Errors
/// If they can't be written.
pub fn installer(objects: &[Value]) -> Result<File, InstallerError> {
    Ok(File { path: "dist/install.yaml".into(), text: yaml::documents(objects)? })
}

/// The operator's container, if the object is its Deployment.
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
    fn the_image_of_the_operator_is_replaced_and_no_other() {
        let objects = rendered(RENDERED).unwrap();
        let text = |image| installer(&with_image(objects.clone(), image).unwrap()).unwrap().text;
        let (text, as_it_was) = (text(Some("registry/me/cow:v1")), text(None));
        assert!(text.contains("image: registry/me/cow:v1") && text.contains("image: proxy"), "{text}");
        assert!(!text.contains("controller:latest"), "{text}");
        assert!(as_it_was.contains("image: controller:latest"), "{as_it_was}");
        assert_eq!(rendered(&text).unwrap().len(), 2);
    }

    #[test]
    fn what_others_need_goes_first_whatever_the_order_was() {
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
    fn what_has_no_operator_installs_nothing() {
        let error = with_image(rendered("kind: Namespace\n").unwrap(), None).unwrap_err().to_string();
        assert!(error.contains("take config/manager from your version control"), "{error}");
        assert!(rendered("a: [").is_err());
    }
}
