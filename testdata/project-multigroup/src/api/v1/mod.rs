//! The API types of `testproject.org/v1`.

mod lakers;
// +kubebuilder:scaffold:modules

pub use self::lakers::*;
// +kubebuilder:scaffold:exports
