//! What was scaffolded for one kind in one version.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::is_false;

/// By which a resource is known in a project. Empty texts stand for what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The group without its domain.
    pub group: &'a str,
    /// The domain.
    pub domain: &'a str,
    /// The version.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
}

/// One kind in one version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Resource {
    /// Its types, if the project has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<Api>,
    /// Whether it has a controller here.
    #[serde(skip_serializing_if = "is_false")]
    pub controller: bool,
    /// Whether it is one of Kubernetes' own.
    #[serde(skip_serializing_if = "is_false")]
    pub core: bool,
    /// What its group ends with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Whether its types are those of another crate.
    #[serde(skip_serializing_if = "is_false")]
    pub external: bool,
    /// Its group without the domain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// The crate of an external kind, with a version if that was said: `gateway-api@0.20`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub module: String,
    /// Where its types are, as Rust says it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// What many are called. Others leave it out where they find it regular; we never do, since tools differ on what that is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub plural: String,
    /// Its version.
    pub version: String,
    /// Its webhooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<Webhooks>,
    /// What we don't know.
    #[serde(flatten)]
    pub(super) other: Map<String, Value>,
}

impl Resource {
    pub(super) fn new(key: &Key<'_>) -> Self {
        let Key { group, domain, version, kind } = *key;
        let (group, domain, version, kind) = (group.into(), domain.into(), version.into(), kind.into());
        Self { group, domain, version, kind, ..Self::default() }
    }

    /// Its group as the API server knows it: `batch.tutorial.kubebuilder.io`, and nothing for the core group.
    pub fn qualified_group(&self) -> String {
        if self.core && self.group == "core" {
            return String::new();
        }
        let parts = [self.group.as_str(), self.domain.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
    }

    /// By which it is known.
    pub fn key(&self) -> Key<'_> {
        Key { group: &self.group, domain: &self.domain, version: &self.version, kind: &self.kind }
    }
}

/// The types of a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Api {
    /// The version of the definition's own kind: `v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub crd_version: String,
    /// Whether its objects are in namespaces.
    #[serde(skip_serializing_if = "is_false")]
    pub namespaced: bool,
    /// What we don't know.
    #[serde(flatten)]
    pub(super) other: Map<String, Value>,
}

impl Api {
    /// Types whose objects are in namespaces, or aren't.
    pub fn new(namespaced: bool) -> Self {
        Self { crd_version: "v1".into(), namespaced, ..Self::default() }
    }
}

/// The webhooks of a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Webhooks {
    /// Whether its versions are converted.
    #[serde(skip_serializing_if = "is_false")]
    pub conversion: bool,
    /// Whether there is one that sets defaults.
    #[serde(skip_serializing_if = "is_false")]
    pub defaulting: bool,
    /// The versions that are converted to and from this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spoke: Vec<String>,
    /// Whether there is one that refuses.
    #[serde(skip_serializing_if = "is_false")]
    pub validation: bool,
    /// The version of the configurations' own kinds: `v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub webhook_version: String,
    /// What we don't know.
    #[serde(flatten)]
    pub(super) other: Map<String, Value>,
}

impl Webhooks {
    /// Those of both, each version once.
    pub fn join(&mut self, more: Self) {
        self.conversion |= more.conversion;
        self.defaulting |= more.defaulting;
        self.validation |= more.validation;
        self.webhook_version = "v1".into();
        for version in more.spoke {
            if !self.spoke.contains(&version) {
                self.spoke.push(version);
            }
        }
        self.other.extend(more.other);
    }
}
