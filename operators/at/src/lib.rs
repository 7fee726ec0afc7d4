//! The At operator: runs a command in a pod, once, at a given time.
//!
//! [`api`] holds the kind `At`, [`register`] adds its controller to a manager, [`crds`] gives what is to be installed.

pub mod api;
mod controller;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kubewright::prelude::*;

/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    manager.kind::<api::v1alpha1::At>().controller(controller::controller())
}

/// The definitions of the operator's kinds, as they are in `config/crd/bases`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![api::v1alpha1::At::crd()]
}
