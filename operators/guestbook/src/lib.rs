//! The Guestbook operator: pods of a web page, of which one serves and the others stand by.
//!
//! [`api`] holds the kind `Guestbook`, [`register`] adds its controller to a manager, [`crds`] gives what is to be
//! installed. [`page`] is the web page itself, the program of the image that the pods run.

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

/// The definitions of the operator's kinds, as they are in `config/crd/bases`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![api::v1::Guestbook::crd()]
}
