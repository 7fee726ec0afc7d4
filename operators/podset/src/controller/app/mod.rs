//! The controllers of the group `app.example.com`, one module a kind.

pub(crate) mod podset;
// +kubebuilder:scaffold:modules
