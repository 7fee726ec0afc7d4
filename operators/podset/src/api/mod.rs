//! The API of the operator: the kind `PodSet` in two groups, one module each, with one module a version.
//!
//! Both say the same, a number of pods, in the words of two tutorials. The second flavour's bounds are narrower.

pub mod app;
pub mod k8stest;
mod template;

pub use self::template::Template;
