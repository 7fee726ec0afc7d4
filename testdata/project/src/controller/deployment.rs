// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! Looks after each `Deployment`, a kind that is defined elsewhere.

use kubewright::prelude::*;

use k8s_openapi::api::apps::v1::Deployment;

/// The controller, for the manager.
pub(crate) fn controller() -> Controller<Deployment> {
    // What it makes wakes it, too, with `.owns::<ConfigMap>()`.
    Controller::new(DeploymentReconciler).name("deployment")
}

struct DeploymentReconciler;

impl Reconciler<Deployment> for DeploymentReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &Deployment,
        ctx: &Context<Deployment>,
    ) -> Result<Action, ClientError> {
        // Read what is there with `ctx.children()`, and make what is missing with `ctx.apply_child()`.
        let (_, _) = (object, ctx);
        Ok(Action::await_change())
    }
}
