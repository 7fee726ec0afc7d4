//! The API types of `ship.testproject.org/v1beta1`.

mod frigate;
// +kubebuilder:scaffold:modules

pub use self::frigate::*;
// +kubebuilder:scaffold:exports
