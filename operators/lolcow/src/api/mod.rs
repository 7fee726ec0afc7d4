//! The API types, one module per version.

pub mod v1alpha1;
// +kubebuilder:scaffold:modules
