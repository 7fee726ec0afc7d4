//! The API types of `app.example.com/v1alpha1`.

mod podset;
// +kubebuilder:scaffold:modules

pub use self::podset::*;
// +kubebuilder:scaffold:exports
