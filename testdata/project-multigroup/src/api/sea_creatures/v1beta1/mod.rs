//! The API types of `sea-creatures.testproject.org/v1beta1`.

mod kraken;
// +kubebuilder:scaffold:modules

pub use self::kraken::*;
// +kubebuilder:scaffold:exports
