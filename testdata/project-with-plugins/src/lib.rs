//! The project-with-plugins operator.

pub mod api;
mod controller;
// +kubebuilder:scaffold:modules

use kubewright::prelude::*;

/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    let manager = manager.kind::<api::v1::Memcached>();
    let manager = manager.controller(controller::memcached::controller());
    let manager = manager.kind::<api::v1::Busybox>();
    let manager = manager.controller(controller::busybox::controller());
    let manager = manager.kind::<api::v1::Settings>();
    // +kubebuilder:scaffold:builder
    manager
}
