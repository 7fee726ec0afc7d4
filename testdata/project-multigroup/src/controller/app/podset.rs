//! Looks after each `PodSet`, a kind that is defined elsewhere.

use kubewright::prelude::*;

use podset_operator::api::app::v1alpha1::PodSet;

/// The controller, for the manager.
pub(crate) fn controller() -> Controller<PodSet> {
    // What it makes wakes it, too, with `.owns::<ConfigMap>()`.
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
        // Read what is there with `ctx.children()`, and make what is missing with `ctx.apply_child()`.
        let (_, _) = (object, ctx);
        Ok(Action::await_change())
    }
}
