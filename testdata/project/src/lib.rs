// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! The project operator.

pub mod api;
mod controller;
mod webhook;
// +kubebuilder:scaffold:modules

use kubewright::prelude::*;

/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    let manager = manager.kind::<api::v1::Captain>();
    let manager = manager.controller(controller::captain::controller());
    let manager = manager.kind::<api::v1::FirstMate>();
    let manager = manager.controller(controller::firstmate::controller());
    let manager = manager.kind::<api::v1::Admiral>();
    let manager = manager.controller(controller::admiral::controller());
    let manager = manager.controller(controller::deployment::controller());
    let manager = manager.webhook(webhook::v1::captain::webhook());
    let manager = manager.webhook(webhook::v1::firstmate::webhook());
    let manager = manager.webhook(webhook::v1::admiral::webhook());
    let manager = manager.webhook(webhook::v1::pod::webhook());
    // +kubebuilder:scaffold:builder
    manager
}
