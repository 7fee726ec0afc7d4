//! The reconciler for `Destroyer`.

use kubewright::prelude::*;

use crate::api::ship::v1::Destroyer;

/// Returns the controller.
pub(crate) fn controller() -> Controller<Destroyer> {
    // Declare owned kinds, whose changes trigger a reconcile, with `.owns::<Deployment>()`.
    Controller::new(DestroyerReconciler).name("ship-destroyer")
}

struct DestroyerReconciler;

impl Reconciler<Destroyer> for DestroyerReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &Destroyer,
        ctx: &Context<Destroyer>,
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
