//! The Lolcow operator: a web page on which a cow says what the spec says, at the port that the spec says.
//!
//! [`api`] holds the kind `Lolcow`, [`register`] adds the controller to a manager, [`crds`] gives what is to be installed.
//! [`page`] is the web server that plays the image.

pub mod api;
mod controller;
pub mod page;
// +kubebuilder:scaffold:modules

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kubewright::prelude::*;

/// The environment variable with the address of a node, for `status.url`. Every node answers on a node port, so any will
/// do: in a pod it is the downward API's `status.hostIP`. It spares the operator the right to read nodes.
pub const NODE_ADDRESS: &str = "NODE_ADDRESS";

/// Where node ports answer when [`NODE_ADDRESS`] says nothing: on the embedded cluster, and others of one machine.
const LOOPBACK: &str = "127.0.0.1";

/// Adds the operator to a manager. `status.url` is at the address in [`NODE_ADDRESS`], else at `127.0.0.1`.
pub fn register(manager: Manager) -> Manager {
    let address = std::env::var(NODE_ADDRESS).ok().filter(|address| !address.trim().is_empty());
    register_at(manager, address.as_deref().unwrap_or(LOOPBACK))
}

/// Adds the operator to a manager; `status.url` is at this name or address.
pub fn register_at(manager: Manager, node_address: &str) -> Manager {
    let manager = manager.kind::<api::v1alpha1::Lolcow>();
    let manager = manager.controller(controller::lolcow::controller(node_address.trim()));
    // +kubebuilder:scaffold:builder
    manager
}

/// The definitions of the operator's kinds, as they are in `config/crd/bases`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![api::v1alpha1::Lolcow::crd()]
}
