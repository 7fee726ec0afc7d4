//! The reconciler for `Kraken`.

use kubewright::prelude::*;

use crate::api::sea_creatures::v1beta1::Kraken;

/// Returns the controller.
pub(crate) fn controller() -> Controller<Kraken> {
    // Declare owned kinds, whose changes trigger a reconcile, with `.owns::<Deployment>()`.
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
