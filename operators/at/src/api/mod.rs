//! The API of the operator, one module a version.

pub mod v1alpha1;
