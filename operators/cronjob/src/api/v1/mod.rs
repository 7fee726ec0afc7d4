//! The API types of `batch.tutorial.kubebuilder.io/v1`.

mod cronjob;
// +kubebuilder:scaffold:modules

pub use self::cronjob::*;
// +kubebuilder:scaffold:exports
