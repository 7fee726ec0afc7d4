//! A right that the role doesn't have.
//!
//! The operator reads the nodes to decide how many replicas it needs. Its author's test cluster lets it do everything.
//! In production its role is generated from what it declares, and the request is refused.
//!
//! The fixed operator declares the rule.

use k8s_openapi::api::core::v1::Node;

use crate::kit::*;

bug!("permissions not declared", [
    "https://github.com/kcp-dev/kcp-operator/issues/210",
    "https://github.com/3scale/3scale-operator/pull/745",
    "https://github.com/kubernetes-sigs/kubebuilder/issues/3105",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Spread", namespaced)]
pub(crate) struct SpreadSpec {
    per_node: usize,
}

struct Operator;

impl Reconciler<Spread> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, spread: &Spread, ctx: &Context<Spread>) -> Result<Action, ClientError> {
        let nodes = ctx.live().list::<Node>(&Selector::default()).await?.len().max(1);
        let replicas = (nodes * spread.spec.per_node).to_string();
        ctx.apply_child(config_map(named(&spread.name_any()), "replicas", &replicas)).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Spread>::new(Operator).owns::<ConfigMap>();
    let rule = PolicyRule::of::<Node>([Verb::List]);
    let controller = if fixed { controller.rbac(|role| role.allow(rule)) } else { controller };
    manager.kind::<Spread>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Spread", "agents", json!({"per_node": 2}))).await;
    sim.advance(1.hours()).await;
}
