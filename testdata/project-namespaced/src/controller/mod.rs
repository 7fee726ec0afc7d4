//! The controllers, one module a kind.

pub(crate) mod captain;
// +kubebuilder:scaffold:modules
