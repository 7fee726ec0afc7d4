//! The group `ship.testproject.org`, one module a version.

pub mod v1;
pub mod v1beta1;
// +kubebuilder:scaffold:modules
