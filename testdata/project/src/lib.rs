// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! The project operator.

pub mod api;
mod controller;
// +kubebuilder:scaffold:modules

use kubewright::prelude::*;

/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    let manager = manager.controller(controller::captain::controller());
    let manager = manager.controller(controller::firstmate::controller());
    let manager = manager.controller(controller::admiral::controller());
    let manager = manager.controller(controller::deployment::controller());
    // +kubebuilder:scaffold:builder
    manager
}
