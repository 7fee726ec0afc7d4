//! The API types of `cnat.d2iq.com/v1alpha1`.

mod at;
// +kubebuilder:scaffold:modules

pub use self::at::*;
// +kubebuilder:scaffold:exports
