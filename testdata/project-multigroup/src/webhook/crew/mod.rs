//! The webhooks of the group `crew.testproject.org`, one module a version.

pub(crate) mod v1;
// +kubebuilder:scaffold:modules
