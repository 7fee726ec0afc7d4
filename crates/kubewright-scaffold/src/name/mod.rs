//! The names in a project: their validation, and their Rust forms.
//!
//! The rules are those of Kubernetes for CustomResourceDefinitions, of kubebuilder for versions, and of Rust for
//! modules, types and crates. Each error explains the problem, and suggests a similar valid name if there is one.

mod group;
mod kind;
mod project;
mod rust;
mod version;

use std::fmt;

use thiserror::Error;

pub use self::{
    group::{Domain, Group, qualified_group},
    kind::{Kind, Plural},
    project::ProjectName,
    version::Version,
};

/// An invalid name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the {what} {value:?} {why}{}", Suggestion(.instead.as_deref()))]
pub struct NameError {
    /// The kind of name, such as `kind` or `group`.
    pub what: &'static str,
    /// The invalid name.
    pub value: String,
    /// The broken rule, as the end of a sentence.
    pub why: String,
    /// A similar valid name.
    pub instead: Option<String>,
}

impl NameError {
    pub(crate) fn new(what: &'static str, value: &str, why: impl Into<String>) -> Self {
        Self { what, value: value.to_owned(), why: why.into(), instead: None }
    }

    /// Suggests `instead` if it is valid.
    fn or<T: std::str::FromStr>(mut self, instead: String) -> Self {
        if instead != self.value && instead.parse::<T>().is_ok() {
            self.instead = Some(instead);
        }
        self
    }
}

/// The suggestion at the end of an error.
struct Suggestion<'a>(Option<&'a str>);

impl fmt::Display for Suggestion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(instead) => write!(f, ": try {instead:?}"),
            None => Ok(()),
        }
    }
}

/// Implements serialization as a string, with validation on deserialization.
macro_rules! as_text {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use as_text;

/// The common part of all names: a validated string.
macro_rules! text {
    ($name:ident) => {
        $crate::name::as_text!($name);

        impl $name {
            /// Returns the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}
use text;

/// Returns the module of a group in the multigroup layout: `foo_policy` for `foo.policy`.
pub(crate) fn group_module(group: &str) -> String {
    rust::module(group)
}

/// Converts a text to lower case, replaces characters that are invalid in DNS names with hyphens, and trims hyphens at
/// the ends. Returns an empty string for texts in other scripts, of which too little would be left.
fn dns_like(text: &str) -> String {
    if !text.is_ascii() {
        return String::new();
    }
    let character = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let text: String = text.chars().map(character).collect();
    text.trim_matches(['-', '.']).to_owned()
}
