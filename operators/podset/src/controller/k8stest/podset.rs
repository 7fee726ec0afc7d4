//! Keeps as many pods as each `PodSet` of `k8stest.justin0u0.com` desires.

use kubewright::prelude::*;

use crate::{api::k8stest::v1alpha1::PodSet, controller::reconcile};

/// Returns the controller.
pub(crate) fn controller() -> Controller<PodSet> {
    reconcile::controller("podset-k8stest")
}
