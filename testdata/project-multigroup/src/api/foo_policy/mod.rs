//! The group `foo.policy.testproject.org`, one module a version.

pub mod v1;
// +kubebuilder:scaffold:modules
