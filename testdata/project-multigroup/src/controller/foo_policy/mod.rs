//! The controllers of the group `foo.policy.testproject.org`, one module per kind.

pub(crate) mod healthcheckpolicy;
// +kubebuilder:scaffold:modules
