//! The kinds of the operator, one module a version.

pub mod v1;
pub mod v1beta1;
pub mod v2;
pub mod v2alpha1;
// +kubebuilder:scaffold:modules
