//! The pure part of Kubernetes' API machinery, which performs no I/O.
//!
//! * [`schema`]: schemas of built-in and custom kinds in one representation; validation, defaulting, pruning
//! * [`cel`]: the Common Expression Language, with kube-apiserver's cost limits
//! * [`patch`]: JSON patch, merge patch, strategic merge patch
//! * [`apply`]: server-side apply and field ownership
//! * [`selector`]: label and field selectors
//! * [`path`]: JSON paths in CRDs
//! * [`decode`]: strict decoding of JSON and YAML
//! * [`depth`]: the limit of a document's nesting depth
//! * [`name`]: the syntax of names, labels and annotations
//! * [`status`]: errors, in kube-apiserver's wording
//! * [`description`]: an operator's description of itself, from which manifests are generated
//! * [`clock`] and [`random`]: the only modules that read the time and generate random values
//!
//! All objects are [`serde_json::Value`]s, since an API server must preserve unknown fields.

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
