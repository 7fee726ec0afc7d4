//! The controllers, one module per kind.

pub(crate) mod before;
mod job;
pub(crate) mod migration;
// +kubebuilder:scaffold:modules
