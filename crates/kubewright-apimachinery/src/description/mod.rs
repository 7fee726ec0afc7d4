//! The description that an operator writes of itself for the command line, which may have been built with another
//! version of the runtime.
//!
//! [`Manager::run`] writes it instead of running if [`VARIABLE`] names a file. `kubewright manifests` reads it. Objects
//! are [`Value`]s, since neither side needs to know their types.
//!
//! [`Manager::run`]: https://docs.rs/kubewright/latest/kubewright/manager/struct.Manager.html#method.run

mod rule;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

pub use self::rule::{Rule, Scope, Verb};

/// The version of this format. Fields may be added within a version; readers ignore unknown fields.
pub const VERSION: u32 = 1;

/// The environment variable that names the file to write a description to.
pub const VARIABLE: &str = "KUBEWRIGHT_DESCRIBE";

/// The kinds, controllers, webhooks and permissions of an operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Description {
    /// The version of this format.
    pub version: u32,
    /// The kinds that the operator defines, in the order of their declaration.
    pub kinds: Vec<Kind>,
    /// The controllers, in the order in which they were added.
    pub controllers: Vec<Controller>,
    /// The webhook configurations, for a Service `webhook-service` in the namespace `system`: kubebuilder's names,
    /// which kustomize replaces.
    pub webhook_configurations: Vec<Value>,
    /// The kinds that the operator converts between versions.
    pub conversions: Vec<Conversion>,
    /// Permissions that the operator needs in addition to those of its controllers.
    pub rights: Vec<Rule>,
    /// Permissions that features of the runtime need, by role name: `leader-election`, `metrics-auth`,
    /// `metrics-reader`, `webhook`. The names lack the prefix that kustomize adds.
    pub features: BTreeMap<String, Vec<Rule>>,
    /// The namespaces that the operator watches; all if empty.
    pub namespaces: Vec<String>,
    /// The ports that the operator listens on.
    pub ports: Vec<Port>,
}

/// A kind that an operator defines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Kind {
    /// One CustomResourceDefinition for each version, which contains only that version. The first is the storage
    /// version.
    pub versions: Vec<Value>,
}

/// The versions of a kind that an operator converts between.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Conversion {
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The versions, starting with the hub.
    pub versions: Vec<String>,
    /// The `spec.conversion` of the kind's CRD, with names as in `webhook_configurations`.
    pub spec: Value,
}

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Controller {
    /// The name.
    pub name: String,
    /// The kinds that the controller uses.
    pub uses: Vec<Use>,
    /// The finalizer that the controller adds to its objects.
    pub finalizer: Option<String>,
    /// True if the controller keeps workspaces in ConfigMaps.
    pub workspace: bool,
    /// Permissions in addition to those derived from the kinds.
    pub may: Vec<Rule>,
    /// Derived permissions that the controller doesn't need.
    pub may_not: Vec<Rule>,
}

/// A kind that a controller uses, and their relation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Use {
    /// The kind.
    pub resource: Resource,
    /// The relation to the controller.
    pub relation: Relation,
}

/// A kind by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Resource {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The name in paths and rules.
    pub plural: String,
    /// True if the kind is namespaced.
    pub namespaced: bool,
}

/// The relation of a kind to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Relation {
    /// The controller reconciles objects of this kind.
    For,
    /// The controller's objects own objects of this kind.
    Owns,
    /// Changes of this kind trigger reconciliation, through a mapper.
    Watches,
    /// The controller only reads this kind.
    Reads,
}

/// A port that an operator listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Port {
    /// The name of the service on the port: `metrics`, `probes`, `webhook`.
    pub name: String,
    /// The port number.
    pub number: u16,
}

/// The error that a description can't be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// The text is not a description.
    #[error("invalid operator description: {0}")]
    Syntax(#[from] serde_json::Error),
    /// The description has another version.
    #[error(
        "the operator describes itself in version {found}, and this kubewright knows version {VERSION}: {}",
        if *.found > VERSION { "use a newer kubewright" } else { "build the operator with a newer version of the crate kubewright" }
    )]
    Version {
        /// The description's version.
        found: u32,
    },
}

impl Description {
    /// Parses the output of [`Description::write`].
    ///
    /// If the text is not a description, or has another version.
    pub fn read(text: &str) -> Result<Self, DescriptionError> {
        // Checks the version first, since nothing else in another version is reliable.
        let value: Value = serde_json::from_str(text)?;
        let found = value["version"].as_u64().and_then(|found| u32::try_from(found).ok()).unwrap_or_default();
        if found != VERSION {
            return Err(DescriptionError::Version { found });
        }
        Ok(serde_json::from_value(value)?)
    }

    /// Returns the description as text.
    ///
    /// # Errors
    /// If an object has a value that JSON can't represent.
    pub fn write(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

macro_rules! made_of {
    ($type:ident { $($field:ident: $kind:ty),* }) => {
        impl $type {
            /// Creates a value from its parts.
            pub fn new($($field: $kind),*) -> Self {
                Self { $($field),* }
            }
        }
    };
}

made_of!(Kind { versions: Vec<Value> });
made_of!(Conversion { group: String, kind: String, versions: Vec<String>, spec: Value });
made_of!(Use { resource: Resource, relation: Relation });
made_of!(Resource { group: String, version: String, kind: String, plural: String, namespaced: bool });
made_of!(Port { name: String, number: u16 });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_description_is_read_back() {
        let resource = Resource::new("apps".into(), "v1".into(), "Deployment".into(), "deployments".into(), true);
        let uses = vec![Use::new(resource, Relation::Owns)];
        let controllers = vec![Controller { name: "a".into(), uses, ..Controller::default() }];
        let described = Description { version: VERSION, controllers, ..Description::default() };
        assert_eq!(Description::read(&described.write().unwrap()).unwrap(), described);
    }

    #[test]
    fn another_version_is_refused_with_what_to_do() {
        let refused = |text: &str| Description::read(text).unwrap_err().to_string();
        assert!(refused(r#"{"version": 2, "kinds": 7}"#).ends_with("use a newer kubewright"));
        assert!(refused("{}").contains("in version 0") && refused("{}").contains("newer version of the crate"));
        assert!(refused("help!").starts_with("invalid operator description"));
    }

    #[test]
    fn new_fields_within_a_version_are_ignored() {
        let text = r#"{"version": 1, "controllers": [{"name": "a", "moods": []}], "weather": "fine"}"#;
        assert_eq!(Description::read(text).unwrap().controllers[0].name, "a");
    }
}
