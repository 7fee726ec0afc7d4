//! What the operator needs of the cluster: its definitions, and on demand its samples.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result};
use kubewright_apimachinery::description::Description;
use kubewright_manifests::{definition, yaml};
use serde_json::Value;

/// The definitions that are installed, by name.
#[derive(Debug, Default)]
pub(super) struct Definitions(BTreeMap<String, Value>);

impl Definitions {
    /// Those that are new or have changed. A kind that the operator brings no more is left alone, with its objects.
    pub(super) fn changed(&self, description: &Description) -> Result<Vec<Value>> {
        let mut changed = Vec::new();
        for kind in &description.kinds {
            let mut definition = definition::join(kind)?;
            // The webhook server that runs says where it converts.
            if let Some(spec) = definition["spec"].as_object_mut() {
                spec.remove("conversion");
            }
            if self.0.get(name(&definition)) != Some(&definition) {
                changed.push(definition);
            }
        }
        Ok(changed)
    }

    /// Notes that these are installed.
    pub(super) fn note(&mut self, definitions: Vec<Value>) {
        self.0.extend(definitions.into_iter().map(|definition| (name(&definition).to_owned(), definition)));
    }
}

fn name(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().unwrap_or_default()
}

/// The objects in the samples of a project, in the order of the files' names.
pub(super) fn samples(folder: &Path) -> Result<Vec<Value>> {
    let folder = folder.join("config/samples");
    let entries = folder.read_dir().with_context(|| format!("look for samples in {}", folder.display()))?;
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| {
        let is_yaml = file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        is_yaml && file.file_stem().is_some_and(|name| name != "kustomization")
    });
    files.sort();
    let mut objects = Vec::new();
    for file in files {
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
    fn only_what_has_changed_is_installed_again() {
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
        let mut definitions = Definitions::default();
        let changed = definitions.changed(&describe("cows")).unwrap();
        assert_eq!(changed.len(), 1);
        definitions.note(changed);
        assert_eq!(definitions.changed(&describe("cows")).unwrap(), Vec::<Value>::new());
        let kine = definitions.changed(&describe("kine")).unwrap();
        assert_eq!(kine[0]["metadata"]["name"], "kine.my.domain");
    }

    #[test]
    fn samples_are_read_without_the_kustomization() {
        let folder = tempfile::tempdir().unwrap();
        assert!(samples(folder.path()).unwrap_err().to_string().starts_with("look for samples in "));
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
        let kinds: Vec<_> = samples(folder.path()).unwrap().iter().map(|object| object["kind"].clone()).collect();
        assert_eq!(kinds, ["A", "AA", "B"]);
    }
}
