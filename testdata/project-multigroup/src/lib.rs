//! The project-multigroup operator.

pub mod api;
mod controller;
mod webhook;
// +kubebuilder:scaffold:modules

use kubewright::prelude::*;

/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    let manager = manager.kind::<api::crew::v1::Captain>();
    let manager = manager.controller(controller::crew::captain::controller());
    let manager = manager.kind::<api::ship::v1beta1::Frigate>();
    let manager = manager.controller(controller::ship::frigate::controller());
    let manager = manager.kind::<api::ship::v1::Destroyer>();
    let manager = manager.controller(controller::ship::destroyer::controller());
    let manager = manager.kind::<api::sea_creatures::v1beta1::Kraken>();
    let manager = manager.controller(controller::sea_creatures::kraken::controller());
    let manager = manager.kind::<api::foo_policy::v1::HealthCheckPolicy>();
    let manager = manager.controller(controller::foo_policy::healthcheckpolicy::controller());
    let manager = manager.kind::<api::v1::Lakers>();
    let manager = manager.controller(controller::lakers::controller());
    let manager = manager.controller(controller::apps::deployment::controller());
    let manager = manager.controller(controller::app::podset::controller());
    let manager = manager.webhook(webhook::crew::v1::captain::webhook());
    let manager = manager.webhook(webhook::ship::v1::destroyer::webhook());
    let manager = manager.webhook(webhook::app::v1alpha1::podset::webhook());
    // +kubebuilder:scaffold:builder
    manager
}
