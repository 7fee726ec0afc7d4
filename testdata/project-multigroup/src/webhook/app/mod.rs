//! The webhooks of the group `app.example.com`, one module a version.

pub(crate) mod v1alpha1;
// +kubebuilder:scaffold:modules
