//! The API types, one module per version.

pub mod v1;
pub mod v1beta1;
pub mod v2;
pub mod v2alpha1;
// +kubebuilder:scaffold:modules
