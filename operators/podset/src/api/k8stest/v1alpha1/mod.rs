//! The API types of `k8stest.justin0u0.com/v1alpha1`.

mod podset;
// +kubebuilder:scaffold:modules

pub use self::podset::*;
// +kubebuilder:scaffold:exports
