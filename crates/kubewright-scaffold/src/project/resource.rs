//! The scaffolded parts of one kind in one version.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::is_false;

/// The key of a resource. Empty strings stand for missing parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The group, without the domain.
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
    /// The types, if the project defines them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<Api>,
    /// Whether the project has a controller for it.
    #[serde(skip_serializing_if = "is_false")]
    pub controller: bool,
    /// Whether the kind is built into Kubernetes.
    #[serde(skip_serializing_if = "is_false")]
    pub core: bool,
    /// The domain of the group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Whether the types are in another crate.
    #[serde(skip_serializing_if = "is_false")]
    pub external: bool,
    /// The group, without the domain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The crate of an external type, optionally with a version: `gateway-api@0.20`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub module: String,
    /// The Rust path of the module with the types.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The plural resource name. kubebuilder omits regular plurals, but tools disagree on the rules, so kubewright
    /// always writes it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub plural: String,
    /// The version.
    pub version: String,
    /// The webhooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<Webhooks>,
    /// Unknown keys, which are preserved.
    #[serde(flatten)]
    pub(super) other: Map<String, Value>,
}

impl Resource {
    pub(super) fn new(key: &Key<'_>) -> Self {
        let Key { group, domain, version, kind } = *key;
        let (group, domain, version, kind) = (group.into(), domain.into(), version.into(), kind.into());
        Self { group, domain, version, kind, ..Self::default() }
    }

    /// Returns the full API group, such as `batch.tutorial.kubebuilder.io`; empty for the core group.
    pub fn qualified_group(&self) -> String {
        if self.core && self.group == "core" {
            return String::new();
        }
        let parts = [self.group.as_str(), self.domain.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
    }

    /// Returns the key of the resource.
    pub fn key(&self) -> Key<'_> {
        Key { group: &self.group, domain: &self.domain, version: &self.version, kind: &self.kind }
    }
}

/// The types of a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Api {
    /// The API version of the CustomResourceDefinition: `v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub crd_version: String,
    /// Whether the kind is namespaced.
    #[serde(skip_serializing_if = "is_false")]
    pub namespaced: bool,
    /// Unknown keys, which are preserved.
    #[serde(flatten)]
    pub(super) other: Map<String, Value>,
}

impl Api {
    /// Creates a value for a namespaced or cluster-scoped kind.
    pub fn new(namespaced: bool) -> Self {
        Self { crd_version: "v1".into(), namespaced, ..Self::default() }
    }
}

/// The webhooks of a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Webhooks {
    /// Whether this version is the hub of a conversion.
    #[serde(skip_serializing_if = "is_false")]
    pub conversion: bool,
    /// Whether the kind has a defaulting webhook.
    #[serde(skip_serializing_if = "is_false")]
    pub defaulting: bool,
    /// The versions that are converted to and from this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spoke: Vec<String>,
    /// Whether the kind has a validating webhook.
    #[serde(skip_serializing_if = "is_false")]
    pub validation: bool,
    /// The API version of the webhook configurations: `v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub webhook_version: String,
    /// Unknown keys, which are preserved.
    #[serde(flatten)]
    pub(super) other: Map<String, Value>,
}

impl Webhooks {
    /// Combines two values. Duplicate spokes are removed.
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
