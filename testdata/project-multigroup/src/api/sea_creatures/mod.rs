//! The API types of the group `sea-creatures.testproject.org`, one module per version.

pub mod v1beta1;
// +kubebuilder:scaffold:modules
