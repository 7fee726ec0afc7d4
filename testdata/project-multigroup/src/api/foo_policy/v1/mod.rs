//! The API types of `foo.policy.testproject.org/v1`.

mod healthcheckpolicy;
// +kubebuilder:scaffold:modules

pub use self::healthcheckpolicy::*;
// +kubebuilder:scaffold:exports
