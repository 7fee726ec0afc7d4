//! The controllers of the group `crew.testproject.org`, one module per kind.

pub(crate) mod captain;
// +kubebuilder:scaffold:modules
