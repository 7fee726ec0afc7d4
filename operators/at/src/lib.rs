//! The At operator, which runs a command in a pod once at a given time.
//!
//! [`api`] contains the kind `At`, [`register`] adds its controller to a manager, and [`crds`] returns the definitions
//! to install.

pub mod api;
mod controller;
// +kubebuilder:scaffold:modules

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kubewright::prelude::*;

/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    let manager = manager.kind::<api::v1alpha1::At>();
    let manager = manager.controller(controller::at::controller());
    // +kubebuilder:scaffold:builder
    manager
}

/// Returns the definitions of the operator's kinds, as in `config/crd/bases`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![api::v1alpha1::At::crd()]
}
