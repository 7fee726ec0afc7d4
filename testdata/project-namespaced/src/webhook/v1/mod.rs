//! The webhooks of `crew.testproject.org/v1`, one module per kind.

pub(crate) mod captain;
// +kubebuilder:scaffold:modules
