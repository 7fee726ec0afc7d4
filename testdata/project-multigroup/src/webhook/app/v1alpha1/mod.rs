//! The webhooks of version `v1alpha1`, one module per kind.

pub(crate) mod podset;
// +kubebuilder:scaffold:modules
