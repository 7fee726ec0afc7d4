//! The controllers, one module per kind.

pub(crate) mod captain;
pub(crate) mod firstmate;
// +kubebuilder:scaffold:modules
