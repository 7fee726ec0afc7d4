//! The group `k8stest.justin0u0.com`.

pub mod v1alpha1;
