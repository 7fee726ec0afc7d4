//! The API types, one module per group.
//!
//! Both say the same, a number of pods, in the words of two tutorials. The second flavour's bounds are narrower.

pub mod app;
pub mod k8stest;
// +kubebuilder:scaffold:modules

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kubewright::schema::AsWritten;

/// A pod template as it was written. What is none is told in a condition, and what makes no valid pod with the API
/// server's own words.
pub type Template = AsWritten<PodTemplateSpec>;
