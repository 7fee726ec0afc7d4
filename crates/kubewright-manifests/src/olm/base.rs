//! The part of a ClusterServiceVersion that authors edit.

use serde_json::{Value, json};

use super::{CSV, CSV_VERSION, items, text};

/// The directory of the base.
pub const BASES: &str = "config/manifests/bases";

/// Returns the base of an operator: names, an icon to replace, and what OLM has to know before an installation.
pub fn base(package: &str, namespaced: bool) -> Value {
    let modes = [
        ("OwnNamespace", true),
        ("SingleNamespace", namespaced),
        ("MultiNamespace", false),
        ("AllNamespaces", !namespaced),
    ];
    let modes: Vec<_> =
        modes.into_iter().map(|(name, is_supported)| json!({"type": name, "supported": is_supported})).collect();
    json!({
        "apiVersion": CSV_VERSION,
        "kind": CSV,
        "metadata": {
            "name": format!("{package}.v0.0.0"),
            "namespace": "placeholder",
            "annotations": {"alm-examples": "[]", "capabilities": "Basic Install"},
        },
        "spec": {
            "displayName": words(package),
            "description": format!("The {package} operator. Replace this by what users read in the catalog (Markdown)."),
            "icon": [{"base64data": "", "mediatype": ""}],
            "keywords": [package],
            "links": [{"name": words(package), "url": format!("https://{package}.domain")}],
            "maintainers": [{"name": "Maintainer Name", "email": "your@email.com"}],
            "maturity": "alpha",
            "minKubeVersion": "1.29.0",
            "provider": {"name": "Provider Name", "url": "https://your.domain"},
            "version": "0.0.0",
            "installModes": modes,
            "apiservicedefinitions": {},
            "customresourcedefinitions": {},
            "install": {"strategy": "deployment", "spec": {"deployments": null}},
        },
    })
}

/// Returns the kustomization that renders everything for a bundle.
pub fn kustomization(package: &str, has_samples: bool) -> String {
    let samples = if has_samples { "- ../samples\n" } else { "" };
    format!(
        "# What kubewright generate bundle renders.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n\
         - bases/{package}.clusterserviceversion.yaml\n- ../default\n{samples}"
    )
}

/// Adds kinds of definitions to a base, with descriptors of their fields. Entries and descriptors that are there stay
/// as they are; entries of kinds that no longer exist are removed.
pub fn add_owned(csv: &mut Value, definitions: &[Value]) {
    let before = items(csv, "/spec/customresourcedefinitions/owned").to_vec();
    let mut owned = Vec::new();
    for definition in definitions {
        for version in items(definition, "/spec/versions") {
            let mut entry = entry(definition, version);
            let same = |other: &&Value| ["name", "version", "kind"].iter().all(|key| other[*key] == entry[*key]);
            if let Some(Value::Object(there)) = before.iter().find(same) {
                let added = entry.as_object().cloned().unwrap_or_default();
                let mut merged = there.clone();
                for (key, value) in added {
                    let value = match merged.get(&key).and_then(Value::as_array) {
                        Some(there) => with_paths(there, &value),
                        None => merged.get(&key).cloned().unwrap_or(value),
                    };
                    merged.insert(key, value);
                }
                entry = merged.into();
            }
            owned.push(entry);
        }
    }
    owned.sort_by_key(|entry| (text(entry, "/name").to_owned(), text(entry, "/version").to_owned()));
    if let Some(definitions) = csv.pointer_mut("/spec/customresourcedefinitions").and_then(Value::as_object_mut) {
        definitions.insert("owned".into(), owned.into());
    } else {
        csv["spec"]["customresourcedefinitions"] = json!({"owned": owned});
    }
}

/// Returns descriptors: those that are there, and new ones for other paths.
fn with_paths(there: &[Value], new: &Value) -> Value {
    let is_new = |descriptor: &&Value| !there.iter().any(|other| other["path"] == descriptor["path"]);
    there.iter().chain(new.as_array().into_iter().flatten().filter(is_new)).cloned().collect()
}

/// Returns the entry of a version of a kind.
fn entry(definition: &Value, version: &Value) -> Value {
    let kind = text(definition, "/spec/names/kind");
    let schema = |part: &str| version.pointer(&format!("/schema/openAPIV3Schema/{part}")).cloned().unwrap_or_default();
    let description = schema("description")
        .as_str()
        .map_or_else(|| format!("{kind} of {}", text(definition, "/spec/group")), str::to_owned);
    let mut entry = json!({
        "name": text(definition, "/metadata/name"), "kind": kind, "version": version["name"],
        "displayName": words(kind), "description": description,
    });
    for (part, key) in [("spec", "specDescriptors"), ("status", "statusDescriptors")] {
        let found = descriptors(&schema(&format!("properties/{part}/properties")));
        if !found.is_empty() {
            entry[key] = found.into();
        }
    }
    entry
}

/// Returns a descriptor for each field.
fn descriptors(properties: &Value) -> Vec<Value> {
    let described = |(name, schema): (&String, &Value)| {
        let mut descriptor = json!({"path": name, "displayName": words(name)});
        if let Some(description) = schema["description"].as_str() {
            descriptor["description"] = description.into();
        }
        match (name.as_str(), schema["type"].as_str()) {
            ("conditions", _) => descriptor["x-descriptors"] = json!(["urn:alm:descriptor:io.kubernetes.conditions"]),
            (_, Some("boolean")) => {
                descriptor["x-descriptors"] = json!(["urn:alm:descriptor:com.tectonic.ui:booleanSwitch"])
            }
            (_, Some("integer" | "number")) => {
                descriptor["x-descriptors"] = json!(["urn:alm:descriptor:com.tectonic.ui:number"])
            }
            _ => {}
        }
        descriptor
    };
    let mut all: Vec<_> = properties.as_object().into_iter().flatten().map(described).collect();
    all.sort_by_key(|descriptor| text(descriptor, "/path").to_owned());
    all
}

/// Returns a name as words: `Cron Job` for `CronJob`, `cron-job` and `cronJob`.
fn words(name: &str) -> String {
    let mut words = String::new();
    let mut previous = ' ';
    for letter in name.chars() {
        match letter {
            '-' | '_' | '.' => words.push(' '),
            letter if words.is_empty() || words.ends_with(' ') => words.extend(letter.to_uppercase()),
            letter => {
                if letter.is_uppercase() && previous.is_lowercase() {
                    words.push(' ');
                }
                words.push(letter);
            }
        }
        previous = letter;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_words() {
        for (name, expected) in [
            ("CronJob", "Cron Job"),
            ("cron-job", "Cron Job"),
            ("jobHistoryLimit", "Job History Limit"),
            ("URL", "URL"),
        ] {
            assert_eq!(words(name), expected);
        }
    }

    #[test]
    fn kinds_are_added_with_descriptors_and_edits_stay() {
        let properties = json!({"size": {"type": "integer", "description": "How many."}, "on": {"type": "boolean"}});
        let schema =
            json!({"openAPIV3Schema": {"description": "One cow.", "properties": {"spec": {"properties": properties}}}});
        let definition = json!({
            "metadata": {"name": "cows.my.domain"},
            "spec": {"group": "my.domain", "names": {"kind": "Cow"}, "versions": [{"name": "v1", "schema": schema}]},
        });
        let mut csv = base("cow-operator", false);
        add_owned(&mut csv, std::slice::from_ref(&definition));
        let owned = &csv["spec"]["customresourcedefinitions"]["owned"];
        assert_eq!((&owned[0]["displayName"], &owned[0]["description"]), (&json!("Cow"), &json!("One cow.")));
        let paths: Vec<_> = items(&owned[0], "/specDescriptors").iter().map(|found| text(found, "/path")).collect();
        assert_eq!(paths, ["on", "size"]);
        // Edits stay, and kinds that are gone go.
        let edited = json!({
            "name": "cows.my.domain", "kind": "Cow", "version": "v1", "displayName": "Mine",
            "specDescriptors": [{"path": "size", "displayName": "Herd"}],
        });
        csv["spec"]["customresourcedefinitions"]["owned"] =
            json!([edited, {"name": "old", "kind": "Old", "version": "v1"}]);
        add_owned(&mut csv, &[definition]);
        let owned = items(&csv, "/spec/customresourcedefinitions/owned");
        assert_eq!((owned.len(), &owned[0]["displayName"]), (1, &json!("Mine")));
        assert_eq!(owned[0]["specDescriptors"][0], json!({"path": "size", "displayName": "Herd"}));
        assert_eq!(text(&owned[0]["specDescriptors"][1], "/path"), "on");
    }
}
