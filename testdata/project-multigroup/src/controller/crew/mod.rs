//! The controllers of the group `crew.testproject.org`, one module a kind.

pub(crate) mod captain;
// +kubebuilder:scaffold:modules
