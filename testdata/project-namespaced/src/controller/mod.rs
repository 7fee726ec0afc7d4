//! The controllers, one module per kind.

pub(crate) mod captain;
// +kubebuilder:scaffold:modules
