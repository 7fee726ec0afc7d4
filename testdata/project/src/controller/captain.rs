// SPDX-FileCopyrightText: Kubewright
// SPDX-License-Identifier: Apache-2.0

//! Makes the cluster be as each `Captain` says.

use kubewright::prelude::*;

use crate::api::v1::Captain;

/// The controller, for the manager.
pub(crate) fn controller() -> Controller<Captain> {
    // What it makes wakes it, too, with `.owns::<Deployment>()`.
    Controller::new(CaptainReconciler).name("captain")
}

struct CaptainReconciler;

impl Reconciler<Captain> for CaptainReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &Captain,
        ctx: &Context<Captain>,
    ) -> Result<Action, ClientError> {
        // Read what is there with `ctx.children()`, and make what is missing with `ctx.apply_child()`.
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
