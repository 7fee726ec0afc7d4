//! The webhooks of version `v1`, one module per kind.

pub(crate) mod destroyer;
// +kubebuilder:scaffold:modules
