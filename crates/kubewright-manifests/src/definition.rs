//! CustomResourceDefinitions with all versions of a kind.
//!
//! kube's derive gives one definition per version. Settings of the whole kind must be equal in all of them, which is
//! checked before they are joined; `kube::core::crd::merge_crds` drops differences.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_apimachinery::description::Kind;
use serde_json::{Value, json};
use thiserror::Error;

/// A failure to join the versions of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// A definition has no version.
    #[error("CustomResourceDefinition {0} has no version: describe the kind with kube's derive")]
    Empty(String),
    /// A version occurs twice.
    #[error("{kind} has the version {version:?} twice: rename one of them")]
    SameVersion {
        /// The name of the definition.
        kind: String,
        /// The version.
        version: String,
    },
    /// A setting of the whole kind differs between versions.
    #[error("versions of {kind} differ in {path}: {first}, but {other}; use the same value in both derives")]
    Differ {
        /// The name of the definition.
        kind: String,
        /// The path of the setting.
        path: String,
        /// The value in the storage version.
        first: String,
        /// The value in the other version.
        other: String,
    },
}

/// Joins the versions of a kind, in their order. The first is the storage version.
///
/// # Errors
/// Returns an error if versions differ in names, short names, categories, scope, labels or annotations, or if two have
/// the same name.
pub fn join(kind: &Kind) -> Result<Value, JoinError> {
    let Some(first) = kind.versions.first() else { return Err(JoinError::Empty("a kind".into())) };
    let name = text(first, "/metadata/name");
    let stored = version_of(first);
    let (shared, mut versions, mut names) = (flat(&shared(first)), Vec::new(), BTreeSet::new());
    for definition in &kind.versions {
        let others = flat(&self::shared(definition));
        let paths: BTreeSet<_> = shared.keys().chain(others.keys()).collect();
        if let Some(path) = paths.into_iter().find(|path| shared.get(*path) != others.get(*path)) {
            let shown = |of: &BTreeMap<String, Value>, version: &str| {
                let value = of.get(path).map_or_else(|| "absent".into(), Value::to_string);
                format!("{value} in {version}")
            };
            let (first, other) = (shown(&shared, &stored), shown(&others, &version_of(definition)));
            return Err(JoinError::Differ { kind: name, path: path.clone(), first, other });
        }
        let described = definition.pointer("/spec/versions").and_then(Value::as_array);
        for version in described.filter(|described| !described.is_empty()).ok_or(JoinError::Empty(name.clone()))? {
            if !names.insert(text(version, "/name")) {
                return Err(JoinError::SameVersion { kind: name, version: text(version, "/name") });
            }
            let mut version = version.clone();
            version["storage"] = json!(versions.is_empty());
            versions.push(version);
        }
    }
    let mut joined = first.clone();
    joined["spec"]["versions"] = Value::Array(versions);
    if let Some(joined) = joined.as_object_mut() {
        joined.remove("status");
    }
    Ok(joined)
}

/// Returns the path of a definition, as in controller-gen.
pub fn path(definition: &Value) -> String {
    let (group, plural) = (text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
    format!("config/crd/bases/{group}_{plural}.yaml")
}

/// Returns a definition without its versions.
fn shared(definition: &Value) -> Value {
    let mut shared = definition.clone();
    shared["spec"]["versions"] = Value::Null;
    shared
}

/// Collects lists and values by their paths. The order of lists counts.
fn flat(value: &Value) -> BTreeMap<String, Value> {
    fn walk(value: &Value, path: &str, into: &mut BTreeMap<String, Value>) {
        let Value::Object(map) = value else {
            into.insert(path.to_owned(), value.clone());
            return;
        };
        for (key, value) in map {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            walk(value, &path, into);
        }
    }
    let mut flat = BTreeMap::new();
    walk(value, "", &mut flat);
    flat
}

fn version_of(definition: &Value) -> String {
    text(definition, "/spec/versions/0/name")
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(version: &str, names: Value) -> Value {
        json!({
            "metadata": {"name": "cows.my.domain"},
            "spec": {
                "group": "my.domain", "scope": "Namespaced", "names": names,
                "versions": [{"name": version, "served": true, "storage": true}],
            },
        })
    }

    fn joined(versions: &[(&str, Value)]) -> Result<Value, String> {
        let versions = versions.iter().map(|(version, names)| definition(version, names.clone())).collect();
        join(&Kind::new(versions)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_version_is_the_storage_version() {
        let names = json!({"kind": "Cow", "plural": "cows", "shortNames": ["c"]});
        let cow = joined(&[("v2", names.clone()), ("v1", names)]).unwrap();
        let versions = json!([
            {"name": "v2", "served": true, "storage": true}, {"name": "v1", "served": true, "storage": false},
        ]);
        assert_eq!(cow["spec"]["versions"], versions);
        assert_eq!(path(&cow), "config/crd/bases/my.domain_cows.yaml");
    }

    #[test]
    fn versions_must_have_equal_settings() {
        let names = json!({"kind": "Cow", "plural": "cows", "categories": ["farm"]});
        let other = json!({"kind": "Cow", "plural": "cows", "categories": ["farm", "all"]});
        let expected = "versions of cows.my.domain differ in spec.names.categories: [\"farm\"] in v2, but \
                        [\"farm\",\"all\"] in v1; use the same value in both derives";
        assert_eq!(joined(&[("v2", names.clone()), ("v1", other)]).unwrap_err(), expected);
        let short = json!({"kind": "Cow", "plural": "cows", "categories": ["farm"], "shortNames": ["c"]});
        let error = joined(&[("v2", names.clone()), ("v1", short)]).unwrap_err();
        assert!(error.contains("spec.names.shortNames: absent in v2, but [\"c\"] in v1"), "{error}");
        assert!(joined(&[("v1", names.clone()), ("v1", names)]).unwrap_err().contains("the version \"v1\" twice"));
    }

    #[test]
    fn a_kind_without_a_version_is_an_error() {
        assert_eq!(join(&Kind::new(Vec::new())), Err(JoinError::Empty("a kind".into())));
        let mut none = definition("v1", json!({}));
        none["spec"]["versions"] = json!([]);
        assert_eq!(join(&Kind::new(vec![none])), Err(JoinError::Empty("cows.my.domain".into())));
    }
}
