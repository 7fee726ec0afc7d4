//! The API types of the group `app.example.com`, one module per version.

pub mod v1alpha1;
// +kubebuilder:scaffold:modules
