//! The controllers of the group `apps`, one module per kind.

pub(crate) mod deployment;
// +kubebuilder:scaffold:modules
