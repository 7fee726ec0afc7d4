//! The webhooks, one module per group.

pub(crate) mod app;
pub(crate) mod crew;
pub(crate) mod ship;
// +kubebuilder:scaffold:modules
