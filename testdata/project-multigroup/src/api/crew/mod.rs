//! The API types of the group `crew.testproject.org`, one module per version.

pub mod v1;
// +kubebuilder:scaffold:modules
