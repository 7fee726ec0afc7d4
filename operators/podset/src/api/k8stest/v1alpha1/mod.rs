//! `k8stest.justin0u0.com/v1alpha1`.

mod podset;

pub use self::podset::{PodSet, PodSetSpec, PodSetStatus};
