//! The PodSet operator, which keeps a number of pods running. It serves the APIs of two tutorials.
//!
//! [`api`] contains the kind `PodSet` in its two groups, [`register`] adds their controllers to a manager, and [`crds`]
//! returns the definitions to install.

pub mod api;
mod controller;
// +kubebuilder:scaffold:modules

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kubewright::prelude::*;

// ANCHOR: register
/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    let manager = manager.kind::<api::k8stest::v1alpha1::PodSet>();
    let manager = manager.controller(controller::k8stest::podset::controller());
    let manager = manager.kind::<api::app::v1alpha1::PodSet>();
    let manager = manager.controller(controller::app::podset::controller());
    // +kubebuilder:scaffold:builder
    manager
}
// ANCHOR_END: register

/// Adds the operator for PodSets of `app.example.com` in all clusters of a manager besides its own.
pub fn register_by_cluster(manager: Manager) -> Manager {
    manager.controller_by_cluster(|_| controller::app::podset::controller())
}

/// Returns the definitions of the operator's kinds, as in `config/crd/bases`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![api::k8stest::v1alpha1::PodSet::crd(), api::app::v1alpha1::PodSet::crd()]
}
