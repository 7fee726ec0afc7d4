//! A child rendered from a map without an order.
//!
//! The operator renders the variables of its spec into a child, in the order in which a hash map returns them, which
//! differs from run to run. It compares the text with what is there, finds a difference, and writes; the write wakes it
//! again. With pod templates each write restarts the pods.
//!
//! The fixed operator sorts them. (The buggy one shuffles with the runtime's random source, in the way in which maps
//! with random keys do, so that a run can be repeated.)

use crate::kit::*;

bug!("hash of an unordered map", [
    "https://github.com/stacklok/toolhive/issues/5063",
    "https://github.com/keycloak/keycloak/issues/19725",
    "https://github.com/stackabletech/airflow-operator/pull/372",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Server", namespaced)]
pub(crate) struct ServerSpec {
    environment: BTreeMap<String, String>,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Server> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, server: &Server, ctx: &Context<Server>) -> Result<Action, ClientError> {
        let mut lines: Vec<_> = server.spec.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !self.fixed {
            lines.sort_by_cached_key(|_| ctx.random().u64());
        }
        let (name, text) = (format!("{}-env", server.name_any()), lines.join("\n"));
        let known = ctx.get::<ConfigMap>(&ctx.key().sibling(&name))?;
        if known.is_none_or(|known| entry(&known, "env") != text) {
            ctx.apply_child(config_map(named(&name), "env", &text)).await?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Server>::new(Operator { fixed }).owns::<ConfigMap>();
    manager.kind::<Server>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    let environment: BTreeMap<_, _> = (0..12).map(|number| (format!("KEY_{number}"), "value")).collect();
    sim.apply(&manifest("Server", "api", json!({"environment": environment}))).await;
    sim.advance(1.hours()).await;
}
