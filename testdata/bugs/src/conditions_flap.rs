//! Conditions that go to and fro.
//!
//! At the start of each run the operator says that it is progressing, and at its end that it is ready. Both are changes
//! of the status, so that each run causes the next one, and whoever waits for `Ready` sees it come and go.
//!
//! The fixed operator reports what it has observed, once, at the end.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::kit::*;

bug!("conditions flap", [
    "https://github.com/paperclipinc/openclaw-operator/pull/163",
    "https://github.com/kai-scheduler/KAI-Scheduler/pull/1273",
    "https://github.com/IBM/staticroute-operator/pull/60",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Gateway", namespaced, status = "GatewayStatus")]
pub(crate) struct GatewaySpec {
    listen: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct GatewayStatus {
    conditions: Vec<Condition>,
}

struct Operator {
    fixed: bool,
}

impl Operator {
    async fn report(&self, gateway: &Gateway, ready: bool, ctx: &Context<Gateway>) -> Result<(), ClientError> {
        let mut conditions = gateway.status.clone().unwrap_or_default().conditions;
        let reason = if ready { "Reconciled" } else { "Reconciling" };
        Conditions::new(&mut conditions, gateway.metadata.generation, ctx.now()).set("Ready", ready, reason, "");
        ctx.set_status(GatewayStatus { conditions }).await
    }
}

impl Reconciler<Gateway> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, gateway: &Gateway, ctx: &Context<Gateway>) -> Result<Action, ClientError> {
        if !self.fixed {
            self.report(gateway, false, ctx).await?;
        }
        ctx.apply_child(config_map(named(&gateway.name_any()), "listen", &gateway.spec.listen)).await?;
        self.report(gateway, true, ctx).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Gateway>::new(Operator { fixed }).owns::<ConfigMap>();
    manager.kind::<Gateway>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Gateway", "edge", json!({"listen": ":443"}))).await;
    sim.advance(1.hours()).await;
}
