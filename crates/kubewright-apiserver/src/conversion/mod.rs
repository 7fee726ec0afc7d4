//! The versions of custom kinds, and conversion between them by the rules of a definition
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>).

pub(crate) mod versions;
mod webhook;

pub use self::versions::Versions;
pub(crate) use self::{
    versions::Definition,
    webhook::{REVIEW_VERSIONS, Webhook},
};
