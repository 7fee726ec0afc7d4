//! The API types, one module per version.

pub mod v1;
// +kubebuilder:scaffold:modules
