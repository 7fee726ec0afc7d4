//! The reconciler for `HealthCheckPolicy`.

use kubewright::prelude::*;

use crate::api::foo_policy::v1::HealthCheckPolicy;

/// Returns the controller.
pub(crate) fn controller() -> Controller<HealthCheckPolicy> {
    // Declare owned kinds, whose changes trigger a reconcile, with `.owns::<Deployment>()`.
    Controller::new(HealthCheckPolicyReconciler).name("foo.policy-healthcheckpolicy")
}

struct HealthCheckPolicyReconciler;

impl Reconciler<HealthCheckPolicy> for HealthCheckPolicyReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &HealthCheckPolicy,
        ctx: &Context<HealthCheckPolicy>,
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
