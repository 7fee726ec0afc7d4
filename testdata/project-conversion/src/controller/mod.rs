//! The controllers, one module a kind.

pub(crate) mod captain;
pub(crate) mod firstmate;
// +kubebuilder:scaffold:modules
