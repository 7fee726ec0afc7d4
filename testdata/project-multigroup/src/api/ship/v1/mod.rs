//! The API types of `ship.testproject.org/v1`.

mod destroyer;
// +kubebuilder:scaffold:modules

pub use self::destroyer::*;
// +kubebuilder:scaffold:exports
