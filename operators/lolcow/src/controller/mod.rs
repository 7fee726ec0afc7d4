//! The controllers, one module per kind.

mod children;
mod field_conflict;
pub(crate) mod lolcow;
mod plan;
mod report;
// +kubebuilder:scaffold:modules
