//! The group `k8stest.justin0u0.com`, one module a version.

pub mod v1alpha1;
// +kubebuilder:scaffold:modules
