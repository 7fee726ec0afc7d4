//! The controllers, one module per kind.

pub(crate) mod at;
mod plan;
mod report;
mod run;
mod schedule;
// +kubebuilder:scaffold:modules
