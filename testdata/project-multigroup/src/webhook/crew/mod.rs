//! The webhooks of the group `crew.testproject.org`, one module per version.

pub(crate) mod v1;
// +kubebuilder:scaffold:modules
