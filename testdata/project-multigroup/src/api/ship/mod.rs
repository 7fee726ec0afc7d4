//! The API types of the group `ship.testproject.org`, one module per version.

pub mod v1;
pub mod v1beta1;
// +kubebuilder:scaffold:modules
