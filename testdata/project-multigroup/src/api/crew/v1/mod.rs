//! The API types of `crew.testproject.org/v1`.

mod captain;
// +kubebuilder:scaffold:modules

pub use self::captain::*;
// +kubebuilder:scaffold:exports
