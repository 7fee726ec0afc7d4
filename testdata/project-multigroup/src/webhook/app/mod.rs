//! The webhooks of the group `app.example.com`, one module per version.

pub(crate) mod v1alpha1;
// +kubebuilder:scaffold:modules
