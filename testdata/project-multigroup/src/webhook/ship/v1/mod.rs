//! The webhooks of `ship.testproject.org/v1`, one module per kind.

pub(crate) mod destroyer;
// +kubebuilder:scaffold:modules
