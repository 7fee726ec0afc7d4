//! The controllers, one module per kind.

pub(crate) mod app;
pub(crate) mod apps;
pub(crate) mod crew;
pub(crate) mod foo_policy;
pub(crate) mod lakers;
pub(crate) mod sea_creatures;
pub(crate) mod ship;
// +kubebuilder:scaffold:modules
