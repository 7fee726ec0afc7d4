//! The controllers, one module per kind.

mod children;
pub(crate) mod cronjob;
mod job;
pub(crate) mod plan;
mod record;
mod report;
// +kubebuilder:scaffold:modules
