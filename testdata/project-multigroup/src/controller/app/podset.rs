//! The reconciler for `PodSet`, a kind that is defined elsewhere.

use kubewright::prelude::*;

use podset_operator::api::app::v1alpha1::PodSet;

/// Returns the controller.
pub(crate) fn controller() -> Controller<PodSet> {
    // Declare owned kinds, whose changes trigger a reconcile, with `.owns::<ConfigMap>()`.
    Controller::new(PodSetReconciler).name("app-podset")
}

struct PodSetReconciler;

impl Reconciler<PodSet> for PodSetReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &PodSet,
        ctx: &Context<PodSet>,
    ) -> Result<Action, ClientError> {
        // Read existing children with `ctx.children()`, and create missing ones with `ctx.apply_child()`.
        let (_, _) = (object, ctx);
        Ok(Action::await_change())
    }
}
