//! A reconcile that waits.
//!
//! The operator needs a secret that a user provides, and looks for it every ten seconds within one run. The run holds
//! its worker: objects whose secrets exist aren't served while one is missing somewhere.
//!
//! The fixed operator watches the secret, and ends the run.

use tokio::time::sleep;

use crate::kit::*;

bug!("retry that blocks the worker", [
    "https://github.com/kubernetes-sigs/kubebuilder/issues/1965",
    "https://github.com/FoundationDB/fdb-kubernetes-operator/issues/733",
    "https://github.com/aiven/aiven-operator/pull/125",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Connector", namespaced)]
pub(crate) struct ConnectorSpec {
    secret: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Connector> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, connector: &Connector, ctx: &Context<Connector>) -> Result<Action, ClientError> {
        let key = ctx.key().sibling(&connector.spec.secret);
        if self.fixed {
            if !matches!(ctx.watch_object::<Secret>(&key), Ok(Some(_))) {
                return Ok(Action::await_change());
            }
        } else {
            while ctx.live().get::<Secret>(&key).await?.is_none() {
                sleep(Duration::from_secs(10)).await;
            }
        }
        ctx.apply_child(config_map(named(&connector.name_any()), "secret", &connector.spec.secret)).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let rule = PolicyRule::of::<Secret>([Verb::Get, Verb::List, Verb::Watch]);
    let controller =
        Controller::<Connector>::new(Operator { fixed }).owns::<ConfigMap>().rbac(|role| role.allow(rule));
    manager.kind::<Connector>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Connector", "later", json!({"secret": "missing"}))).await;
    sim.advance(1.minutes()).await;
    sim.apply(&user_secret("token")).await;
    sim.apply(&manifest("Connector", "now", json!({"secret": "token"}))).await;
    sim.finally("a connector with a secret is served", |world| {
        let maps = world.list::<ConfigMap>();
        world.get::<Connector>("now").is_none_or(|it| maps.iter().any(|map| is_child_of(map, &it)))
    });
    sim.advance(1.hours()).await;
}
