//! The controllers of the group `k8stest.justin0u0.com`, one module per kind.

pub(crate) mod podset;
// +kubebuilder:scaffold:modules
