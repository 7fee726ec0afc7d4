//! The software bill of materials of a program in CycloneDX format, generated from `cargo metadata` and the checksums
//! in the lock file. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The registered media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.cyclonedx+json";

/// The fields in the output of `cargo metadata` that are used here.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    packages: Vec<Package>,
    resolve: Option<Resolve>,
}

/// A package.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    id: String,
    /// The name.
    pub(crate) name: String,
    /// The version.
    pub(crate) version: String,
    /// The SPDX expression of the licence.
    pub(crate) license: Option<String>,
    /// The description.
    pub(crate) description: Option<String>,
    /// The repository.
    pub(crate) repository: Option<String>,
    /// The home page.
    pub(crate) homepage: Option<String>,
    /// The authors.
    #[serde(default)]
    pub(crate) authors: Vec<String>,
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
    root: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl Metadata {
    /// Returns the root package.
    pub(crate) fn root(&self) -> Option<&Package> {
        let root = self.resolve.as_ref()?.root.as_ref()?;
        self.packages.iter().find(|package| &package.id == root)
    }

    /// Returns the normal and build dependencies of the root package, with the dependencies of each. Dev-dependencies
    /// are omitted.
    fn needed(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut found = BTreeMap::new();
        let Some(resolve) = &self.resolve else { return found };
        let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let mut open: Vec<&str> = resolve.root.as_deref().into_iter().collect();
        while let Some(id) = open.pop() {
            let Some(node) = nodes.get(id).filter(|_| !found.contains_key(id)) else { continue };
            let wanted =
                |dependency: &&Dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"));
            let needs: BTreeSet<_> =
                node.deps.iter().filter(wanted).map(|dependency| dependency.pkg.as_str()).collect();
            open.extend(&needs);
            found.insert(id, needs);
        }
        found
    }
}

/// Returns the bill of materials, sorted; `None` if the metadata has no root package.
pub(crate) fn list(metadata: &Metadata, lock: &str) -> Option<Value> {
    let root = metadata.root()?;
    let checksums = checksums(lock);
    let needed = metadata.needed();
    let packages: BTreeMap<_, _> = metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let mut components = BTreeMap::new();
    let mut dependencies = BTreeMap::new();
    for (id, needs) in &needed {
        let Some(package) = packages.get(id) else { continue };
        let checksum = checksums.get(&(package.name.as_str(), package.version.as_str())).copied();
        let reference = purl(package);
        if *id != root.id {
            components.insert(reference.clone(), component(package, "library", checksum));
        }
        let needs = needs.iter().filter_map(|id| packages.get(id)).map(|package| purl(package));
        dependencies.insert(reference, needs.collect::<BTreeSet<_>>());
    }
    let dependencies: Vec<_> =
        dependencies.into_iter().map(|(reference, needs)| json!({"ref": reference, "dependsOn": needs})).collect();
    let own = json!({"type": "application", "name": "kubewright", "version": env!("CARGO_PKG_VERSION")});
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"tools": {"components": [own]}, "component": component(root, "application", None)},
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies,
    }))
}

fn component(package: &Package, kind: &str, checksum: Option<&str>) -> Value {
    let reference = purl(package);
    let mut component = Map::new();
    let mut say = |name: &str, value: Value| component.insert(name.to_owned(), value);
    say("type", kind.into());
    say("bom-ref", reference.as_str().into());
    say("name", package.name.as_str().into());
    say("version", package.version.as_str().into());
    say("purl", reference.into());
    if let Some(license) = &package.license {
        // Old manifests separate alternatives with a slash.
        say("licenses", json!([{"expression": license.replace('/', " OR ").replace("  ", " ")}]));
    }
    if let Some(checksum) = checksum {
        say("hashes", json!([{"alg": "SHA-256", "content": checksum}]));
    }
    if let Some(repository) = &package.repository {
        say("externalReferences", json!([{"type": "vcs", "url": repository}]));
    }
    component.into()
}

/// Returns the package URL. For packages that are not from crates.io, it contains the URL of the source, except for
/// local paths.
fn purl(package: &Package) -> String {
    let plain = format!("pkg:cargo/{}@{}", package.name, package.version.replace('+', "%2B"));
    match &package.source {
        Some(source) if !source.contains("crates.io-index") => {
            let encoded = percent_encoding::utf8_percent_encode(source, percent_encoding::NON_ALPHANUMERIC);
            format!("{plain}?repository_url={encoded}")
        }
        _ => plain,
    }
}

/// Returns the checksums in a lock file, by name and version. Cargo writes one key per line, in a fixed order.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        if let (Some(name), Some(version), Some(checksum)) = (value("name"), value("version"), value("checksum")) {
            found.insert((name, version), checksum);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, source: Option<&str>) -> Value {
        json!({"id": format!("{name} id"), "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source})
    }

    fn depends(name: &str, kinds: &[Value]) -> Value {
        let kinds: Vec<_> = kinds.iter().map(|kind| json!({"kind": kind})).collect();
        json!({"pkg": format!("{name} id"), "dep_kinds": kinds})
    }

    #[test]
    fn dev_dependencies_are_not_listed() {
        let crates = Some("registry+https://github.com/rust-lang/crates.io-index");
        let metadata = json!({
            "packages": [package("cow", None), package("milk", crates), package("barn", Some("git+https://x/y")), package("vet", crates)],
            "resolve": {"root": "cow id", "nodes": [
                {"id": "cow id", "deps": [
                    depends("milk", &[Value::Null, json!("dev")]), depends("barn", &[json!("build")]), depends("vet", &[json!("dev")]),
                ]},
                {"id": "milk id", "deps": []}, {"id": "barn id", "deps": [depends("milk", &[Value::Null])]}, {"id": "vet id", "deps": []},
            ]},
        });
        let metadata: Metadata = serde_json::from_value(metadata).unwrap();
        let lock = "version = 4\n\n[[package]]\nname = \"cow\"\nversion = \"1.0.0\"\ndependencies = [\n \"milk\",\n]\n\n\
                    [[package]]\nname = \"milk\"\nversion = \"1.0.0\"\nsource = \"r\"\nchecksum = \"abc\"\n";
        let list = list(&metadata, lock).unwrap();
        assert_eq!(list["metadata"]["component"]["purl"], "pkg:cargo/cow@1.0.0");
        let barn = "pkg:cargo/barn@1.0.0?repository_url=git%2Bhttps%3A%2F%2Fx%2Fy";
        let components = list["components"].as_array().unwrap();
        let names: Vec<_> = components.iter().map(|component| component["bom-ref"].as_str().unwrap()).collect();
        assert_eq!(names, [barn, "pkg:cargo/milk@1.0.0"]);
        assert_eq!(components[1]["hashes"], json!([{"alg": "SHA-256", "content": "abc"}]));
        assert_eq!(components[1]["licenses"], json!([{"expression": "MIT OR Apache-2.0"}]));
        assert_eq!(
            list["dependencies"],
            json!([
                {"ref": barn, "dependsOn": ["pkg:cargo/milk@1.0.0"]},
                {"ref": "pkg:cargo/cow@1.0.0", "dependsOn": [barn, "pkg:cargo/milk@1.0.0"]},
                {"ref": "pkg:cargo/milk@1.0.0", "dependsOn": []},
            ])
        );
    }
}
