//! The Guestbook operator, which runs the pods of a web page: one serves, and the others stand by.
//!
//! [`api`] contains the kind `Guestbook`, [`register`] adds its controller to a manager, and [`crds`] returns the
//! definitions to install. [`page`] is the web page itself, the program of the pods' image.

pub mod api;
mod controller;
pub mod page;
// +kubebuilder:scaffold:modules

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kubewright::prelude::*;

/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    let manager = manager.kind::<api::v1::Guestbook>();
    let manager = manager.controller(controller::guestbook::controller());
    // +kubebuilder:scaffold:builder
    manager
}

/// Returns the definitions of the operator's kinds, as in `config/crd/bases`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![api::v1::Guestbook::crd()]
}
