//! The pure part of Kubernetes' API machinery: values in, values out, no I/O.
//!
//! * [`schema`]: schemas of built-in and custom kinds in one form; validation, defaulting, pruning
//! * [`cel`]: the Common Expression Language, with kube-apiserver's cost limits
//! * [`patch`]: JSON patch, merge patch, strategic merge patch
//! * [`apply`]: server-side apply and the ownership of fields
//! * [`selector`]: label and field selectors
//! * [`path`]: JSON paths, as CRDs write them
//! * [`decode`]: strict decoding of JSON and YAML
//! * [`depth`]: the limit of a document's nesting
//! * [`name`]: the syntax of names, labels and annotations
//! * [`status`]: errors, worded as kube-apiserver words them
//! * [`description`]: an operator's description of itself, which manifests are generated from
//! * [`clock`] and [`random`]: the only places where time is read and randomness drawn
//!
//! Objects are [`serde_json::Value`]s throughout: an API server must keep fields that it doesn't know.

pub mod apply;
pub mod cel;
pub mod clock;
pub mod decode;
pub mod depth;
pub mod description;
mod field_path;
pub mod name;
pub mod patch;
pub mod path;
mod pattern;
pub mod random;
pub mod schema;
pub mod selector;
pub mod status;
#[cfg(test)]
mod testing;
