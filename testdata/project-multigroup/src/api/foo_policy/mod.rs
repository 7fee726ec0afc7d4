//! The API types of the group `foo.policy.testproject.org`, one module per version.

pub mod v1;
// +kubebuilder:scaffold:modules
