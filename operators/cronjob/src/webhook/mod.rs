//! The webhooks, one module a version.

pub(crate) mod v1;
// +kubebuilder:scaffold:modules
