//! What a program is made of, in CycloneDX' form: from `cargo metadata` and the digests of the lock. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The form, as IANA has registered it.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.cyclonedx+json";

/// What `cargo metadata` says, as far as it matters here.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    packages: Vec<Package>,
    resolve: Option<Resolve>,
}

/// A crate.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    id: String,
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// As SPDX has it.
    pub(crate) license: Option<String>,
    /// What it is, in a sentence.
    pub(crate) description: Option<String>,
    /// Where its sources are.
    pub(crate) repository: Option<String>,
    /// Where it is told of.
    pub(crate) homepage: Option<String>,
    /// Who wrote it.
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
    /// The crate that it was asked of.
    pub(crate) fn root(&self) -> Option<&Package> {
        let root = self.resolve.as_ref()?.root.as_ref()?;
        self.packages.iter().find(|package| &package.id == root)
    }

    /// What the crate needs when it runs and when it is built, not when it is tested; each with what it needs itself.
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

/// The list of what the crate's program is made of, sorted; `None` if cargo has not said which crate that is.
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
        // Cargo once took a slash for OR.
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

/// The name of a crate for all the world. What isn't from crates.io is told by where it is from, unless that is a folder here.
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

/// The digests of a lock file, by name and version. Cargo writes it: a line for each key, in a fixed order.
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
    fn a_list_has_what_is_shipped_and_not_what_tests() {
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
