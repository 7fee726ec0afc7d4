//! The webhooks, one module per version.

pub(crate) mod v1;
// +kubebuilder:scaffold:modules
