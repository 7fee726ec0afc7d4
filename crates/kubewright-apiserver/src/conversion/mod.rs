//! The versions of custom kinds, and the conversion between them that a CRD specifies
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>).

pub(crate) mod versions;
mod webhook;

pub use self::versions::Versions;
pub(crate) use self::{
    versions::Definition,
    webhook::{REVIEW_VERSIONS, Webhook},
};
