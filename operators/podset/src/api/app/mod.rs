//! The group `app.example.com`, one module a version.

pub mod v1alpha1;
// +kubebuilder:scaffold:modules
