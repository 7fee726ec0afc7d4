//! The API types of `data.example.com/v1`.

mod migration;
// +kubebuilder:scaffold:modules

pub use self::migration::*;
// +kubebuilder:scaffold:exports
