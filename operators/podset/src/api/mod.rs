//! The API types, one module per group.
//!
//! Both groups describe a number of pods, each as defined in a different tutorial. The second flavour has narrower
//! bounds.

pub mod app;
pub mod k8stest;
// +kubebuilder:scaffold:modules

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kubewright::schema::AsWritten;

/// A pod template as it was written. A malformed template, or one that the API server refuses, is reported in a
/// condition.
pub type Template = AsWritten<PodTemplateSpec>;
