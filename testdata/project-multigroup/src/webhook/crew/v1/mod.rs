//! The webhooks of version `v1`, one module per kind.

pub(crate) mod captain;
// +kubebuilder:scaffold:modules
