//! The group `crew.testproject.org`, one module a version.

pub mod v1;
// +kubebuilder:scaffold:modules
