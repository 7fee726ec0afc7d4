//! Makes the cluster be as each `Kraken` says.

use kubewright::prelude::*;

use crate::api::sea_creatures::v1beta1::Kraken;

/// The controller, for the manager.
pub(crate) fn controller() -> Controller<Kraken> {
    // What it makes wakes it, too, with `.owns::<Deployment>()`.
    Controller::new(KrakenReconciler).name("sea-creatures-kraken")
}

struct KrakenReconciler;

impl Reconciler<Kraken> for KrakenReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &Kraken,
        ctx: &Context<Kraken>,
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
