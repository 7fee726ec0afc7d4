//! The API types of `crew.testproject.org/v1`.

mod captain;
pub(crate) mod captain_conversion;
mod firstmate;
pub(crate) mod firstmate_conversion;
// +kubebuilder:scaffold:modules

pub use self::captain::*;
pub use self::firstmate::*;
// +kubebuilder:scaffold:exports
