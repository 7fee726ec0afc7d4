//! The group `sea-creatures.testproject.org`, one module a version.

pub mod v1beta1;
// +kubebuilder:scaffold:modules
