//! The controllers of the group `ship.testproject.org`, one module per kind.

pub(crate) mod destroyer;
pub(crate) mod frigate;
// +kubebuilder:scaffold:modules
