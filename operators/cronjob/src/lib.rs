//! The CronJob operator: creates a Job each time a schedule says so.
//!
//! [`api`] holds the kind `CronJob`, [`schedule`] reads and computes schedules, [`register`] adds the controller and
//! the [webhooks](webhook) to a manager, [`crds`] gives what is to be installed.

pub mod api;
mod controller;
pub mod schedule;
pub mod webhook;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kubewright::prelude::*;

// ANCHOR: register
/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    manager.kind::<api::v1::CronJob>().controller(controller::controller()).webhook(webhook::webhook())
}
// ANCHOR_END: register

/// The definitions of the operator's kinds, as they are in `config/crd/bases`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![api::v1::CronJob::crd()]
}
