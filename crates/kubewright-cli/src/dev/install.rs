//! The CustomResourceDefinitions and the samples of an operator.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use kubewright_apimachinery::description::Description;
use kubewright_manifests::{definition, yaml};
use serde_json::Value;

use crate::remote::defined_resource;

/// The installed CustomResourceDefinitions, by name.
#[derive(Debug, Default)]
pub(super) struct InstalledCrds(BTreeMap<String, Value>);

impl InstalledCrds {
    /// Returns the definitions that are new or changed. A kind that the operator no longer has stays installed, with
    /// its objects.
    pub(super) fn changed(&self, description: &Description) -> Result<Vec<Value>> {
        let mut changed = Vec::new();
        for kind in &description.kinds {
            let mut definition = definition::join(kind)?;
            // The running webhook server sets the conversion itself.
            if let Some(spec) = definition["spec"].as_object_mut() {
                spec.remove("conversion");
            }
            if self.0.get(name(&definition)) != Some(&definition) {
                changed.push(definition);
            }
        }
        Ok(changed)
    }

    /// Records that definitions are installed.
    pub(super) fn note(&mut self, definitions: Vec<Value>) {
        self.0.extend(definitions.into_iter().map(|definition| (name(&definition).to_owned(), definition)));
    }

    /// Returns whether the cluster has an object of one of the kinds.
    pub(super) async fn has_objects(&self, client: &Client) -> Result<bool> {
        for definition in self.0.values() {
            let Some(resource) = defined_resource(definition) else { continue };
            let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let found = objects.list_metadata(&ListParams::default().limit(1)).await;
            if !found.with_context(|| format!("list {}", resource.plural))?.items.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn name(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().unwrap_or_default()
}

/// The directory of the samples in a project.
const SAMPLES: &str = "config/samples";

/// Returns the arguments with which `kubectl apply`, run in the project's directory, applies the samples; `None` if
/// there are none.
pub(super) fn samples_target(folder: &Path) -> Option<String> {
    let files = sample_files(folder).ok()?;
    match files.as_slice() {
        [] => None,
        [only] => Some(format!("-f {SAMPLES}/{}", only.file_name()?.display())),
        _ if folder.join(SAMPLES).join("kustomization.yaml").is_file() => Some(format!("-k {SAMPLES}")),
        _ => Some(format!("-f {SAMPLES}")),
    }
}

fn sample_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let folder = folder.join(SAMPLES);
    let entries = folder.read_dir().with_context(|| format!("read the samples in {}", folder.display()))?;
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| {
        let is_yaml = file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        is_yaml && file.file_stem().is_some_and(|name| name != "kustomization")
    });
    files.sort();
    Ok(files)
}

/// Returns the objects in the samples of a project, ordered by file name.
pub(super) fn samples(folder: &Path) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for file in sample_files(folder)? {
        let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let read = yaml::read(&text).with_context(|| format!("read {}", file.display()))?;
        objects.extend(read.into_iter().filter(|object| !object.is_null()));
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn only_changed_definitions_are_installed_again() {
        let describe = |plural: &str| -> Description {
            let names = json!({"kind": "Cow", "plural": plural, "singular": "cow"});
            let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
            let spec = json!({"group": "my.domain", "scope": "Namespaced", "names": names, "versions": [version]});
            let metadata = json!({"name": format!("{plural}.my.domain")});
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec,
            });
            serde_json::from_value(json!({"version": 1, "kinds": [{"versions": [definition]}]})).unwrap()
        };
        let mut definitions = InstalledCrds::default();
        let changed = definitions.changed(&describe("cows")).unwrap();
        assert_eq!(changed.len(), 1);
        definitions.note(changed);
        assert_eq!(definitions.changed(&describe("cows")).unwrap(), Vec::<Value>::new());
        let renamed = definitions.changed(&describe("kine")).unwrap();
        assert_eq!(renamed[0]["metadata"]["name"], "kine.my.domain");
    }

    #[test]
    fn samples_are_read_without_the_kustomization() {
        let folder = tempfile::tempdir().unwrap();
        assert!(samples(folder.path()).unwrap_err().to_string().starts_with("read the samples in "));
        let path = folder.path().join("config/samples");
        fs::create_dir_all(&path).unwrap();
        for (file, text) in [
            ("b.yaml", "kind: B\n"),
            ("a.yaml", "# two\nkind: A\n---\nkind: AA\n---\n"),
            ("kustomization.yaml", "kind: Kustomization\n"),
            ("README.md", "kind: no\n"),
        ] {
            fs::write(path.join(file), text).unwrap();
        }
        assert_eq!(samples_target(folder.path()).as_deref(), Some("-k config/samples"));
        let kinds: Vec<_> = samples(folder.path()).unwrap().iter().map(|object| object["kind"].clone()).collect();
        assert_eq!(kinds, ["A", "AA", "B"]);
        fs::remove_file(path.join("a.yaml")).unwrap();
        assert_eq!(samples_target(folder.path()).as_deref(), Some("-f config/samples/b.yaml"));
        fs::remove_file(path.join("b.yaml")).unwrap();
        assert_eq!(samples_target(folder.path()), None);
    }
}
