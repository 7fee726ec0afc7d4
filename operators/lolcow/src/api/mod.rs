//! The kinds of the operator, one module a version.

pub mod v1alpha1;
// +kubebuilder:scaffold:modules
