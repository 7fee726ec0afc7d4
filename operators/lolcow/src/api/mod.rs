//! The kinds of the operator, by version.

pub mod v1alpha1;
