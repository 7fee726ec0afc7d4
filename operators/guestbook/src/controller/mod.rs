//! The controllers, one module per kind.

mod children;
mod config;
pub(crate) mod guestbook;
mod plan;
mod report;
// +kubebuilder:scaffold:modules
