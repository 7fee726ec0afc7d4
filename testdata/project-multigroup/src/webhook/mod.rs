//! The webhooks, one module a group.

pub(crate) mod app;
pub(crate) mod crew;
pub(crate) mod ship;
// +kubebuilder:scaffold:modules
