//! The controllers of the group `ship.testproject.org`, one module a kind.

pub(crate) mod destroyer;
pub(crate) mod frigate;
// +kubebuilder:scaffold:modules
