//! The controllers of the group `sea-creatures.testproject.org`, one module per kind.

pub(crate) mod kraken;
// +kubebuilder:scaffold:modules
