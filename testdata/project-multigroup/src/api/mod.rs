//! The API types, one module per group.

pub mod crew;
pub mod foo_policy;
pub mod sea_creatures;
pub mod ship;
pub mod v1;
// +kubebuilder:scaffold:modules
