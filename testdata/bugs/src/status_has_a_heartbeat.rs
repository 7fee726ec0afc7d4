//! A status that changes although nothing has happened.
//!
//! The operator looks at its object every minute, and writes into the status when it has looked. Each look is a write,
//! which wakes all who watch the kind, itself included. With a shorter interval, or a time of higher resolution, it
//! never stops.
//!
//! The fixed operator writes the time of the last change.

use crate::kit::*;

bug!("status written on each reconcile", [
    "https://github.com/stackabletech/operator-rs/issues/1032",
    "https://github.com/multigres/multigres-operator/pull/185",
    "https://github.com/kubevirt/ssp-operator/pull/59",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Monitor", namespaced, status = "MonitorStatus")]
pub(crate) struct MonitorSpec {
    target: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct MonitorStatus {
    target: String,
    time: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Monitor> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, monitor: &Monitor, ctx: &Context<Monitor>) -> Result<Action, ClientError> {
        let known = monitor.status.as_ref().is_some_and(|status| status.target == monitor.spec.target);
        if !(known && self.fixed) {
            ctx.set_status(MonitorStatus { target: monitor.spec.target.clone(), time: ctx.now().to_string() }).await?;
        }
        Ok(Action::requeue_after(Duration::from_secs(60)))
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Monitor>().controller(Controller::<Monitor>::new(Operator { fixed }))
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Monitor", "shop", json!({"target": "shop.example.com"}))).await;
    sim.advance(1.hours()).await;
}
