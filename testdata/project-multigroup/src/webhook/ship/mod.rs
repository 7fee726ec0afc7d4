//! The webhooks of the group `ship.testproject.org`, one module a version.

pub(crate) mod v1;
// +kubebuilder:scaffold:modules
