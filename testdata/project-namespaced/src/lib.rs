//! The project-namespaced operator.

pub mod api;
mod controller;
mod webhook;
// +kubebuilder:scaffold:modules

use kubewright::prelude::*;

/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    let manager = manager.kind::<api::v1::Captain>();
    let manager = manager.controller(controller::captain::controller());
    let manager = manager.webhook(webhook::v1::captain::webhook());
    // +kubebuilder:scaffold:builder
    manager
}
