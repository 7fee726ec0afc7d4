//! The `PROJECT` file: the settings of a project and its scaffolded resources.
//!
//! It has kubebuilder's layout version 3 (<https://book.kubebuilder.io/reference/project-config.html>), so that
//! kubebuilder's tools can read it. They reject unknown keys, so kubewright's own settings are below `plugins`. Keys
//! that only those tools know are preserved.
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

/// The name of the file.
pub const FILE: &str = "PROJECT";

/// The plugin key of kubewright, in `layout` and above its own settings.
pub const LAYOUT: &str = "rust.kubewright.dev/v1";

/// The content of a `PROJECT` file. Names in it are not validated; commands parse them with [`crate::name`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Project {
    /// The version of kubewright that created the project, such as `0.1.0`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cli_version: String,
    /// The domain of the API groups.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// The plugins of the project. [`LAYOUT`] stands for kubewright.
    #[serde(deserialize_with = "file::one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub layout: Vec<String>,
    /// Whether the sources of each API group are in a directory of their own.
    #[serde(skip_serializing_if = "is_false")]
    pub multigroup: bool,
    /// Whether the operator watches only chosen namespaces, with roles in them.
    #[serde(skip_serializing_if = "is_false")]
    pub namespaced: bool,
    /// The settings of plugins, by plugin key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, Value>,
    /// The project name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project_name: String,
    /// The repository of the sources.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub repo: String,
    /// The scaffolded resources, in their order of creation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// Unknown keys, which are preserved.
    #[serde(flatten)]
    other: Map<String, Value>,
}

pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

impl Project {
    /// Creates a project without resources.
    pub fn new(name: ProjectName, domain: Option<Domain>) -> Self {
        Self {
            cli_version: env!("CARGO_PKG_VERSION").into(),
            domain: domain.map(|domain| domain.to_string()).unwrap_or_default(),
            layout: vec![LAYOUT.into()],
            project_name: name.to_string(),
            ..Self::default()
        }
    }

    /// Returns a setting of kubewright, such as `license` or `owner`.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.plugins.get(LAYOUT)?.get(name)?.as_str()
    }

    /// Sets a setting of kubewright.
    pub fn set(&mut self, name: &str, value: &str) {
        let ours = self.plugins.entry(LAYOUT.into()).or_insert_with(|| Value::Object(Map::new()));
        if !ours.is_object() {
            *ours = Value::Object(Map::new());
        }
        if let Some(ours) = ours.as_object_mut() {
            ours.insert(name.into(), value.into());
        }
    }

    /// Returns the resource with a key.
    pub fn resource(&self, key: &Key<'_>) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.key() == *key)
    }

    /// Returns the resource with a key for changes, and adds it if it does not exist.
    pub fn resource_mut(&mut self, key: &Key<'_>) -> &mut Resource {
        let place = self.resources.iter().position(|resource| resource.key() == *key).unwrap_or_else(|| {
            self.resources.push(Resource::new(key));
            self.resources.len() - 1
        });
        &mut self.resources[place]
    }

    /// Returns the name of the library crate, in which hyphens become underscores.
    pub fn library(&self) -> String {
        self.project_name.replace('-', "_")
    }

    /// Returns whether a resource is the first version of its kind. That is the storage version unless a hub is chosen.
    pub fn is_first_version(&self, resource: &Resource) -> bool {
        let same = |other: &Key<'_>| Key { version: &resource.version, ..*other } == resource.key();
        let first = self.resources.iter().find(|other| other.api.is_some() && same(&other.key()));
        first.is_none_or(|first| first.version == resource.version)
    }

    /// Returns the other versions of a kind.
    pub fn other_versions<'a>(&'a self, key: &Key<'a>) -> impl Iterator<Item = &'a Resource> + use<'a> {
        let key = *key;
        let same = move |other: &Key<'_>| (other.group, other.domain, other.kind) == (key.group, key.domain, key.kind);
        self.resources.iter().filter(move |other| same(&other.key()) && other.version != key.version)
    }

    /// Returns another version of the same kind that has a controller.
    pub fn other_controller<'a>(&'a self, key: &Key<'a>) -> Option<&'a Resource> {
        self.other_versions(key).find(|other| other.controller)
    }

    /// Returns whether the project has types of another group, which requires the multigroup layout.
    pub fn has_other_group(&self, group: &str) -> bool {
        let own = |resource: &&Resource| resource.api.is_some();
        self.resources.iter().filter(own).any(|resource| !resource.group.eq_ignore_ascii_case(group))
    }

    /// Returns a kind of the same version whose types or files conflict with those of `key`, such as `Foobar` with
    /// `FooBar`, or `Foo` with `FooSpec`, since a kind `Foo` has the types `FooSpec`, `FooStatus` and `FooList`.
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
