//! What an operator says of itself: the form in which its program tells the command line, which was perhaps built with
//! another version of the runtime.
//!
//! [`Manager::run`] writes it instead of running when [`VARIABLE`] names a file; `kubewright manifests` reads it. Objects are
//! [`Value`]s, since neither side needs to know more of them than it does.
//!
//! [`Manager::run`]: https://docs.rs/kubewright/latest/kubewright/manager/struct.Manager.html#method.run

mod rule;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

pub use self::rule::{Rule, Scope, Verb};

/// The version of this form. Fields may be added within one; a reader leaves out what it doesn't know.
pub const VERSION: u32 = 1;

/// The environment variable that names the file to write a description to.
pub const VARIABLE: &str = "KUBEWRIGHT_DESCRIBE";

/// What an operator would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Description {
    /// The version of this form.
    pub version: u32,
    /// The kinds that it brings, in the order of their declaration.
    pub kinds: Vec<Kind>,
    /// Its controllers, in the order in which they were added.
    pub controllers: Vec<Controller>,
    /// The configurations of its webhooks: as they are for a Service `webhook-service` in the namespace `system`, kubebuilder's
    /// names before kustomize puts others there.
    pub webhook_configurations: Vec<Value>,
    /// The kinds whose versions it converts.
    pub conversions: Vec<Conversion>,
    /// What it may do beside its controllers.
    pub rights: Vec<Rule>,
    /// What features of the runtime need, for roles of their own: `leader-election`, `metrics-auth`, `metrics-reader`, `webhook`. Names in them
    /// lack what kustomize puts before names.
    pub features: BTreeMap<String, Vec<Rule>>,
    /// The namespaces it watches; none means all.
    pub namespaces: Vec<String>,
    /// The ports it listens on.
    pub ports: Vec<Port>,
}

/// A kind that an operator brings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Kind {
    /// One CustomResourceDefinition for each version, each with that version alone. The first is the one that is stored.
    pub versions: Vec<Value>,
}

/// The versions of a kind that an operator converts into each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Conversion {
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The versions, that in the middle first.
    pub versions: Vec<String>,
    /// What the kind's definition is to say of it, as its `spec.conversion`: with names as in `webhook_configurations`.
    pub spec: Value,
}

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Controller {
    /// Its name.
    pub name: String,
    /// The kinds it uses.
    pub uses: Vec<Use>,
    /// The finalizer it puts on its objects.
    pub finalizer: Option<String>,
    /// Whether it keeps workspaces in config maps.
    pub workspace: bool,
    /// What it may do beyond what follows from that.
    pub may: Vec<Rule>,
    /// What of it it never does.
    pub may_not: Vec<Rule>,
}

/// A kind that a controller uses, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Use {
    /// The kind.
    pub resource: Resource,
    /// How it is used.
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
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

/// How a controller uses a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Relation {
    /// It reconciles objects of this kind.
    For,
    /// Its objects' children are of this kind.
    Owns,
    /// Changes of this kind wake it, through a mapper.
    Watches,
    /// It only reads this kind.
    Reads,
}

/// A port that an operator listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Port {
    /// What is served there: `metrics`, `probes`, `webhook`.
    pub name: String,
    /// Its number.
    pub number: u16,
}

/// Why a description can't be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// It is none.
    #[error("what the operator wrote is no description of itself: {0}")]
    Syntax(#[from] serde_json::Error),
    /// It is of another version.
    #[error(
        "the operator describes itself in version {found}, and this kubewright knows version {VERSION}: {}",
        if *.found > VERSION { "use a newer kubewright" } else { "build the operator with a newer version of the crate kubewright" }
    )]
    Version {
        /// Its version.
        found: u32,
    },
}

impl Description {
    /// Reads what [`Description::write`] wrote.
    ///
    /// # Errors
    /// If it isn't one, or one of another version.
    pub fn read(text: &str) -> Result<Self, DescriptionError> {
        // The version first: of another one, nothing else can be relied on.
        let value: Value = serde_json::from_str(text)?;
        let found = value["version"].as_u64().and_then(|found| u32::try_from(found).ok()).unwrap_or_default();
        if found != VERSION {
            return Err(DescriptionError::Version { found });
        }
        Ok(serde_json::from_value(value)?)
    }

    /// The text of the file.
    ///
    /// # Errors
    /// If an object holds what JSON can't.
    pub fn write(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

macro_rules! made_of {
    ($type:ident { $($field:ident: $kind:ty),* }) => {
        impl $type {
            /// Made of its parts.
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
    fn what_is_written_is_read() {
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
        assert!(refused("help!").starts_with("what the operator wrote is no description"));
    }

    #[test]
    fn what_is_new_within_a_version_is_left_out() {
        let text = r#"{"version": 1, "controllers": [{"name": "a", "moods": []}], "weather": "fine"}"#;
        assert_eq!(Description::read(text).unwrap().controllers[0].name, "a");
    }
}
