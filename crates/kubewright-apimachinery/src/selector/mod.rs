//! Which objects a request means: label selectors and field selectors.
//!
//! Errors are worded as the API server words them, to stand in a 400 answer as they are. Which fields a kind can be
//! selected by is the kind's own matter; see [`FieldSelector::requirements`].

mod field;
mod label;

pub use field::{FieldRequirement, FieldSelector};
pub use label::{LabelSelector, Operator, Requirement};

/// Why a selector makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);
