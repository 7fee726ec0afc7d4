//! The reconciler for `Frigate`.

use kubewright::prelude::*;

use crate::api::ship::v1beta1::Frigate;

/// Returns the controller.
pub(crate) fn controller() -> Controller<Frigate> {
    // Declare owned kinds, whose changes trigger a reconcile, with `.owns::<Deployment>()`.
    Controller::new(FrigateReconciler).name("ship-frigate")
}

struct FrigateReconciler;

impl Reconciler<Frigate> for FrigateReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &Frigate,
        ctx: &Context<Frigate>,
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
