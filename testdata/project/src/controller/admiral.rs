// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! The reconciler for `Admiral`.

use kubewright::prelude::*;

use crate::api::v1::Admiral;

/// Returns the controller.
pub(crate) fn controller() -> Controller<Admiral> {
    // Declare owned kinds, whose changes trigger a reconcile, with `.owns::<Deployment>()`.
    Controller::new(AdmiralReconciler).name("admiral")
}

struct AdmiralReconciler;

impl Reconciler<Admiral> for AdmiralReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &Admiral,
        ctx: &Context<Admiral>,
    ) -> Result<Action, ClientError> {
        // Read existing children with `ctx.children()`, and create missing ones with `ctx.apply_child()`.
        let mut status = object.status.clone().unwrap_or_default();
        let generation = object.metadata.generation;
        let mut conditions = Conditions::new(&mut status.conditions, generation, ctx.now());
        // Replace this once the reconciler creates children: `Ready` is true when they are.
        let message = "the reconciler doesn't create anything yet";
        conditions.set("Ready", ConditionStatus::Unknown, "NotImplemented", message);
        ctx.set_status(status).await?;
        Ok(Action::await_change())
    }
}
