//! The PodSet operator: keeps a number of pods alive, in the words of two tutorials.
//!
//! [`api`] holds the kind `PodSet` in its two groups, [`register`] adds their controllers to a manager, [`crds`] gives
//! what is to be installed.

pub mod api;
mod controller;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kubewright::prelude::*;

use crate::api::{app, k8stest};

// ANCHOR: register
/// Adds the operator to a manager.
pub fn register(manager: Manager) -> Manager {
    manager
        .kind::<k8stest::v1alpha1::PodSet>()
        .kind::<app::v1alpha1::PodSet>()
        .controller(controller::controller::<k8stest::v1alpha1::PodSet>("podset-k8stest"))
        .controller(controller::controller::<app::v1alpha1::PodSet>("podset-app"))
}
// ANCHOR_END: register

/// The definitions of the operator's kinds, as they are in `config/crd/bases`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![k8stest::v1alpha1::PodSet::crd(), app::v1alpha1::PodSet::crd()]
}
