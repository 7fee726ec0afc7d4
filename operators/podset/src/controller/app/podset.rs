//! Keeps as many pods as each `PodSet` of `app.example.com` desires.

use kubewright::prelude::*;

use crate::{api::app::v1alpha1::PodSet, controller::reconcile};

/// Returns the controller.
pub(crate) fn controller() -> Controller<PodSet> {
    reconcile::controller("podset-app")
}
