//! The project-conversion operator.

pub mod api;
mod controller;
mod webhook;
// +kubebuilder:scaffold:modules

use kubewright::prelude::*;

/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    let manager = manager.kind::<api::v1::FirstMate>();
    let manager = manager.controller(controller::firstmate::controller());
    let manager = manager.version::<api::v2::FirstMate>();
    let manager = manager.conversion(api::v1::firstmate_conversion::conversion());
    let manager = manager.version::<api::v1beta1::Captain>();
    let manager = manager.controller(controller::captain::controller());
    let manager = manager.kind::<api::v1::Captain>();
    let manager = manager.version::<api::v2alpha1::Captain>();
    let manager = manager.conversion(api::v1::captain_conversion::conversion());
    let manager = manager.webhook(webhook::v1::captain::webhook());
    // +kubebuilder:scaffold:builder
    manager
}
