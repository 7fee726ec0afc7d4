//! The pure part of Kubernetes' API machinery: values in, values out, no I/O.
//!
//! * [`schema`]: the one form in which every kind's schema is held, built-in or custom; validation, defaulting, pruning
//! * [`patch`]: JSON patch, merge patch, strategic merge patch
//! * [`apply`]: server-side apply and the ownership of fields
//! * [`selector`]: label and field selectors
//! * [`path`]: JSON paths, as CRDs write them
//! * [`decode`]: JSON and YAML text into values, strictly
//! * [`depth`]: how deep a document may nest
//! * [`name`]: the syntax of names, labels and annotations
//! * [`status`]: errors in Kubernetes' words
//! * [`description`]: what an operator says of itself
//! * [`clock`] and [`random`]: the only places where time is read and randomness drawn
//!
//! Objects are [`serde_json::Value`]s throughout: an API server must keep what it doesn't know.

pub mod apply;
pub mod clock;
pub mod decode;
pub mod depth;
pub mod description;
pub mod name;
pub mod patch;
pub mod path;
pub mod random;
pub mod schema;
pub mod selector;
pub mod status;
#[cfg(test)]
mod testing;
mod trail;
