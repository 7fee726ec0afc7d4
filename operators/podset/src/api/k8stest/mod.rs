//! The API types of the group `k8stest.justin0u0.com`, one module per version.

pub mod v1alpha1;
// +kubebuilder:scaffold:modules
