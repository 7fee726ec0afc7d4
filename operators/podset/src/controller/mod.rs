//! The controllers, one module per kind.
//!
//! Both share one reconciler ([`reconcile`]). Their differences are in [`flavour`].

pub(crate) mod app;
mod flavour;
pub(crate) mod k8stest;
mod plan;
mod pod;
mod reconcile;
mod report;
mod view;
// +kubebuilder:scaffold:modules
