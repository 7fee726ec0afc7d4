//! The CronJob operator, which creates Jobs on a schedule.
//!
//! [`api`] contains the kind `CronJob`, [`schedule`] parses and evaluates schedules, [`register`] adds the controller
//! and the webhooks to a manager, and [`crds`] returns the definitions to install.

pub mod api;
mod controller;
pub mod schedule;
mod webhook;
// +kubebuilder:scaffold:modules

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kubewright::prelude::*;

// ANCHOR: register
/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    let manager = manager.kind::<api::v1::CronJob>();
    let manager = manager.controller(controller::cronjob::controller());
    let manager = manager.webhook(webhook::v1::cronjob::webhook());
    // +kubebuilder:scaffold:builder
    manager
}
// ANCHOR_END: register

/// Returns the definitions of the operator's kinds, as in `config/crd/bases`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![api::v1::CronJob::crd()]
}
