//! The controllers, one module per kind.

mod children;
pub(crate) mod lolcow;
mod plan;
mod report;
mod tussle;
// +kubebuilder:scaffold:modules
