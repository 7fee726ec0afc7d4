//! The controllers of the group `app.example.com`, one module per kind.

pub(crate) mod podset;
// +kubebuilder:scaffold:modules
