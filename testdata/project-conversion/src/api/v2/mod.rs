//! The API types of `crew.testproject.org/v2`.

mod firstmate;
// +kubebuilder:scaffold:modules

pub use self::firstmate::*;
// +kubebuilder:scaffold:exports
