//! The reconciler for `Deployment`, a kind that is defined elsewhere.

use kubewright::prelude::*;

use k8s_openapi::api::apps::v1::Deployment;

/// Returns the controller.
pub(crate) fn controller() -> Controller<Deployment> {
    // Declare owned kinds, whose changes trigger a reconcile, with `.owns::<ConfigMap>()`.
    Controller::new(DeploymentReconciler).name("apps-deployment")
}

struct DeploymentReconciler;

impl Reconciler<Deployment> for DeploymentReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &Deployment,
        ctx: &Context<Deployment>,
    ) -> Result<Action, ClientError> {
        // Read existing children with `ctx.children()`, and create missing ones with `ctx.apply_child()`.
        let (_, _) = (object, ctx);
        Ok(Action::await_change())
    }
}
