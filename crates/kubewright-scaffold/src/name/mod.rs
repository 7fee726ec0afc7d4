//! The names that a project is made of: which there may be, and what becomes of them in Rust.
//!
//! The rules are Kubernetes' for the names of a CRD, kubebuilder's for versions, and those of Rust for what becomes a module, a
//! type or a crate. Each refusal says what was wrong, and where it can, what to type instead.

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

/// A name that can't be taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the {what} {value:?} {why}{}", Remedy(.instead.as_deref()))]
pub struct NameError {
    /// What the name is of: `kind`, `group`.
    pub what: &'static str,
    /// The name.
    pub value: String,
    /// What is wrong with it, as the end of a sentence.
    pub why: String,
    /// A name that would do, if one is near.
    pub instead: Option<String>,
}

impl NameError {
    pub(crate) fn new(what: &'static str, value: &str, why: impl Into<String>) -> Self {
        Self { what, value: value.to_owned(), why: why.into(), instead: None }
    }

    /// Offers `instead` if it would be taken.
    fn or<T: std::str::FromStr>(mut self, instead: String) -> Self {
        if instead != self.value && instead.parse::<T>().is_ok() {
            self.instead = Some(instead);
        }
        self
    }
}

/// How a refusal ends.
struct Remedy<'a>(Option<&'a str>);

impl fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(instead) => write!(f, ": try {instead:?}"),
            None => Ok(()),
        }
    }
}

/// A name is written as its text, and looked at again when it is read.
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

/// What all names have in common: a text that was looked at.
macro_rules! text {
    ($name:ident) => {
        $crate::name::as_text!($name);

        impl $name {
            /// The name as it was given.
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

/// The module of a group's kinds where a project has several groups: `foo.policy` is `foo_policy`.
pub(crate) fn group_module(group: &str) -> String {
    rust::module(group)
}

/// `text` in lower case, with what DNS doesn't know turned into hyphens, and none at its ends. Nothing of a text of other letters, of
/// which too little would be left.
fn dns_like(text: &str) -> String {
    if !text.is_ascii() {
        return String::new();
    }
    let character = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let text: String = text.chars().map(character).collect();
    text.trim_matches(['-', '.']).to_owned()
}
