//! The Lolcow operator, which serves a web page with a cow that says a greeting, at a node port.
//!
//! [`api`] contains the kind `Lolcow`, [`register`] adds the controller to a manager, and [`crds`] returns the
//! definitions to install. [`page`] is the web server that runs in place of the image.

pub mod api;
mod controller;
pub mod page;
// +kubebuilder:scaffold:modules

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kubewright::prelude::*;

/// The environment variable with the address of a node, for `status.url`. Every node answers at a node port, so any
/// address suffices: in a pod it is the downward API's `status.hostIP`. The operator therefore needs no permission to
/// read nodes.
pub const NODE_ADDRESS: &str = "NODE_ADDRESS";

/// The default of [`NODE_ADDRESS`], which suits clusters on one machine.
const LOOPBACK: &str = "127.0.0.1";

/// Adds the operator to a manager. `status.url` contains the address in [`NODE_ADDRESS`], which defaults to
/// `127.0.0.1`.
pub fn register(manager: Manager) -> Manager {
    let address = std::env::var(NODE_ADDRESS).ok().filter(|address| !address.trim().is_empty());
    register_at(manager, address.as_deref().unwrap_or(LOOPBACK))
}

/// Adds the operator to a manager. `status.url` contains this name or address.
pub fn register_at(manager: Manager, node_address: &str) -> Manager {
    let manager = manager.kind::<api::v1alpha1::Lolcow>();
    let manager = manager.controller(controller::lolcow::controller(node_address.trim()));
    // +kubebuilder:scaffold:builder
    manager
}

/// Returns the definitions of the operator's kinds, as in `config/crd/bases`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![api::v1alpha1::Lolcow::crd()]
}
