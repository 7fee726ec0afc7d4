//! The file `PROJECT`: what a project is and what was scaffolded in it.
//!
//! It has kubebuilder's layout of version 3 (<https://book.kubebuilder.io/reference/project-config.html>), so that its tools
//! read it. They refuse keys that they don't know, so what only we know is below `plugins`. What only they know is kept as it is.
//!
//! ```
//! use kubewright_scaffold::project::Project;
//!
//! let mut project = Project::new("my-operator".parse()?, Some("my.domain".parse()?));
//! project.multigroup = true;
//! let text = project.write()?;
//! assert!(text.contains("projectName: my-operator"));
//! assert_eq!(Project::read(&text)?, project);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod resource;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::name::{Domain, ProjectName};

pub use self::{
    file::ProjectError,
    resource::{Api, Key, Resource, Webhooks},
};

/// The name of the file, in a project's folder.
pub const FILE: &str = "PROJECT";

/// How our layout is called among kubebuilder's plugins, and where our own settings are.
pub const LAYOUT: &str = "rust.kubewright.dev/v1";

/// The content of a `PROJECT`. Its texts were not looked at: who scaffolds parses them with [`crate::name`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Project {
    /// The version of kubewright that made it, such as `0.1.0`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cli_version: String,
    /// What the groups of its kinds end with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Which plugins made it: ours is [`LAYOUT`].
    #[serde(deserialize_with = "file::one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub layout: Vec<String>,
    /// Whether kinds are in folders by group.
    #[serde(skip_serializing_if = "is_false")]
    pub multigroup: bool,
    /// Whether it watches chosen namespaces only, with roles there.
    #[serde(skip_serializing_if = "is_false")]
    pub namespaced: bool,
    /// Settings of plugins, by plugin.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, Value>,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project_name: String,
    /// Where its sources are.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub repo: String,
    /// What was scaffolded, in that order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// What we don't know.
    #[serde(flatten)]
    other: Map<String, Value>,
}

pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

impl Project {
    /// A project without kinds.
    pub fn new(name: ProjectName, domain: Option<Domain>) -> Self {
        Self {
            cli_version: env!("CARGO_PKG_VERSION").into(),
            domain: domain.map(|domain| domain.to_string()).unwrap_or_default(),
            layout: vec![LAYOUT.into()],
            project_name: name.to_string(),
            ..Self::default()
        }
    }

    /// One of our own settings, such as `license` or `owner`.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.plugins.get(LAYOUT)?.get(name)?.as_str()
    }

    /// Sets one of our own settings.
    pub fn set(&mut self, name: &str, value: &str) {
        let ours = self.plugins.entry(LAYOUT.into()).or_insert_with(|| Value::Object(Map::new()));
        if !ours.is_object() {
            *ours = Value::Object(Map::new());
        }
        if let Some(ours) = ours.as_object_mut() {
            ours.insert(name.into(), value.into());
        }
    }

    /// The resource of this group, domain, version and kind.
    pub fn resource(&self, key: &Key<'_>) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.key() == *key)
    }

    /// The resource of this group, domain, version and kind, to be changed; if it isn't there, it is added.
    pub fn resource_mut(&mut self, key: &Key<'_>) -> &mut Resource {
        let place = self.resources.iter().position(|resource| resource.key() == *key).unwrap_or_else(|| {
            self.resources.push(Resource::new(key));
            self.resources.len() - 1
        });
        &mut self.resources[place]
    }

    /// The library of its package: hyphens are underscores in Rust.
    pub fn library(&self) -> String {
        self.project_name.replace('-', "_")
    }

    /// Whether a resource is the version of its kind that was made first, which is the one that is stored until another is said to be.
    pub fn is_first_version(&self, resource: &Resource) -> bool {
        let same = |other: &Key<'_>| Key { version: &resource.version, ..*other } == resource.key();
        let first = self.resources.iter().find(|other| other.api.is_some() && same(&other.key()));
        first.is_none_or(|first| first.version == resource.version)
    }

    /// The other versions of a kind.
    pub fn other_versions<'a>(&'a self, key: &Key<'a>) -> impl Iterator<Item = &'a Resource> + use<'a> {
        let key = *key;
        let same = move |other: &Key<'_>| (other.group, other.domain, other.kind) == (key.group, key.domain, key.kind);
        self.resources.iter().filter(move |other| same(&other.key()) && other.version != key.version)
    }

    /// Another version of the same kind that has a controller here, if there is one.
    pub fn other_controller<'a>(&'a self, key: &Key<'a>) -> Option<&'a Resource> {
        self.other_versions(key).find(|other| other.controller)
    }

    /// Whether the project has types of another group, so that those of this one need folders by group.
    pub fn has_other_group(&self, group: &str) -> bool {
        let own = |resource: &&Resource| resource.api.is_some();
        self.resources.iter().filter(own).any(|resource| !resource.group.eq_ignore_ascii_case(group))
    }

    /// A kind of the same version whose types or files would be in the way of those of `key`, if there is one: `Foobar` of
    /// `FooBar`, and `Foo` of `FooSpec`, since each kind `Foo` has the types `FooSpec`, `FooStatus` and `FooList`.
    pub fn clash(&self, key: &Key<'_>) -> Option<&Resource> {
        let beside = |resource: &&Resource| {
            resource.api.is_some()
                && (resource.group.as_str(), resource.version.as_str()) == (key.group, key.version)
                && resource.kind != key.kind
        };
        let grown = |short: &str, long: &str| {
            ["Spec", "Status", "List"].iter().any(|end| long.strip_suffix(end) == Some(short))
        };
        self.resources.iter().filter(beside).find(|resource| {
            let kind = resource.kind.as_str();
            kind.eq_ignore_ascii_case(key.kind) || grown(kind, key.kind) || grown(key.kind, kind)
        })
    }
}

#[cfg(test)]
mod tests;
