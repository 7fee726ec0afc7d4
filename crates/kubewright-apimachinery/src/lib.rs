//! The pure part of Kubernetes' API machinery. It performs no I/O, except that [`process`] reads `/proc`.
//!
//! * [`schema`]: schemas of built-in and custom kinds in one representation; validation, defaulting, pruning
//! * [`cel`]: the Common Expression Language, with kube-apiserver's cost limits
//! * [`patch`]: JSON patch, merge patch, strategic merge patch
//! * [`apply`]: server-side apply and field ownership
//! * [`selector`]: label and field selectors
//! * [`path`]: JSON paths in CRDs
//! * [`mod@pointer`]: JSON pointers without allocations
//! * [`decode`]: strict decoding of JSON and YAML
//! * [`document_order`]: the order in which a JSON document has its fields
//! * [`depth`]: the limit of a document's nesting depth
//! * [`go_format`]: the notation of values in messages of Go programs
//! * [`duration`]: durations as Go writes them
//! * [`cidr`]: address ranges
//! * [`certificate`]: the fields of X.509 certificates
//! * [`name`]: the syntax of names, labels and annotations
//! * [`status`]: errors, in kube-apiserver's wording
//! * [`types`]: the built-in types, and how objects pass through them
//! * [`description`]: an operator's description of itself, from which manifests are generated
//! * [`process`]: the metrics of this process
//! * [`trace`]: the traces that an operator serves, and sentences about them
//! * [`text`]: formatting of times, lists and external text in messages
//! * [`clock`] and [`random`]: the only modules that read the time and generate random values
//!
//! All objects are [`serde_json::Value`]s, since an API server must preserve unknown fields.

pub mod apply;
pub mod cel;
pub mod certificate;
pub mod cidr;
pub mod clock;
pub mod decode;
pub mod depth;
pub mod description;
pub mod document_order;
pub mod duration;
mod field_path;
pub mod go_format;
pub mod go_json;
pub mod name;
pub mod patch;
pub mod path;
mod pattern;
pub mod pointer;
pub mod process;
pub mod quantity;
pub mod random;
pub mod schema;
pub mod selector;
pub mod status;
#[cfg(test)]
mod testing;
pub mod text;
pub mod trace;
pub mod types;
mod unicode_repair;
mod url;
pub mod watch;
