//! Keeps as many pods as each `PodSet` of `app.example.com` desires.

use kubewright::prelude::*;

use crate::{api::app::v1alpha1::PodSet, controller::reconcile};

/// The controller, for the manager.
pub(crate) fn controller() -> Controller<PodSet> {
    reconcile::controller("podset-app")
}
