//! The API types of `my.domain/v1alpha1`.

mod lolcow;
// +kubebuilder:scaffold:modules

pub use self::lolcow::*;
// +kubebuilder:scaffold:exports
