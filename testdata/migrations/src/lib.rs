//! An operator that migrates the schemas of databases: the example of the book's page on a bug that
//! simulation finds.
//!
//! It is a project as `kubewright init` and `create api` make it, without the files of a deployment.
//! [`register_before`] has the bug, [`register`] hasn't.

pub mod api;
mod controller;
// +kubebuilder:scaffold:modules

use kubewright::prelude::*;

/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    let manager = manager.kind::<api::v1::Migration>();
    let manager = manager.controller(controller::migration::controller());
    // +kubebuilder:scaffold:builder
    manager
}

/// Adds the operator with the bug.
pub fn register_before(manager: Manager) -> Manager {
    let manager = manager.kind::<api::v1::Migration>();
    manager.controller(controller::before::controller())
}
