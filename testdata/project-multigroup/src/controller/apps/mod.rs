//! The controllers of the group `apps`, one module a kind.

pub(crate) mod deployment;
// +kubebuilder:scaffold:modules
