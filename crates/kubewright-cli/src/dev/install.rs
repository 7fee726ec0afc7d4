//! What the operator needs of the cluster: its definitions, and on demand its samples, by server-side apply.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{Scope, pinned_kind},
};
use kubewright_apimachinery::description::Description;
use kubewright_manifests::{definition, yaml};
use serde_json::Value;
use tokio::time::{sleep, timeout};

/// Who owns the fields.
const MANAGER: &str = "kubewright";

/// How long the API server may take until it serves a kind.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is asked.
const INTERVAL: Duration = Duration::from_millis(10);

/// The definitions that are installed, by name.
#[derive(Debug, Default)]
pub(super) struct Definitions(BTreeMap<String, Value>);

impl Definitions {
    /// Installs those that are new or have changed, and waits until their kinds are served; their names. A kind that the operator brings no
    /// more is left alone, with its objects.
    pub(super) async fn install(&mut self, client: &Client, description: &Description) -> Result<Vec<String>> {
        let mut installed = Vec::new();
        for kind in &description.kinds {
            let mut definition = definition::join(kind)?;
            // The webhook server that runs says where it converts.
            if let Some(spec) = definition["spec"].as_object_mut() {
                spec.remove("conversion");
            }
            let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if self.0.get(&name) == Some(&definition) {
                continue;
            }
            let api = definitions(client);
            let applied = api.patch(&name, &owner(), &Patch::Apply(&definition)).await;
            applied.with_context(|| format!("install the definition {name}"))?;
            let established = timeout(PATIENCE, is_established(&api, &name)).await;
            established
                .with_context(|| format!("the API server does not serve {name} after {} s", PATIENCE.as_secs()))??;
            self.0.insert(name.clone(), definition);
            installed.push(name);
        }
        Ok(installed)
    }
}

fn owner() -> PatchParams {
    PatchParams::apply(MANAGER).force()
}

fn definitions(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

async fn is_established(api: &Api<DynamicObject>, name: &str) -> Result<()> {
    loop {
        let definition = api.get(name).await.with_context(|| format!("get the definition {name}"))?;
        let conditions = definition.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |kind: &str, status: &str| {
            conditions.iter().find(|condition| condition["type"] == kind && condition["status"] == status)
        };
        if let Some(refused) = is("NamesAccepted", "False") {
            bail!("{name} can't have its names: {}", refused["message"].as_str().unwrap_or("another kind has them"));
        }
        if is("Established", "True").is_some() {
            return Ok(());
        }
        sleep(INTERVAL).await;
    }
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

/// Applies an object, in the namespace of the context if it names none; what it is called.
pub(super) async fn apply(client: &Client, object: &Value) -> Result<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let (resource, capabilities) = pinned_kind(client, &GroupVersionKind::gvk(group, version, &kind))
        .await
        .with_context(|| format!("look for the kind {kind}"))?;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_else(|| client.default_namespace());
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    };
    let name = text(&object["metadata"]["name"]);
    let applied = api.patch(&name, &owner(), &Patch::Apply(object)).await;
    let applied = applied.with_context(|| format!("apply the {kind} {name}"))?;
    Ok(match applied.namespace() {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
