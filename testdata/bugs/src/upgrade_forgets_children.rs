//! An upgrade that forgets what the version before it has made.
//!
//! The new version of the operator calls its child otherwise. It creates the child under the new name, and doesn't know
//! the old name any more: both run.
//!
//! The fixed operator deletes children that it doesn't want, whatever they are called.

use crate::kit::*;

bug!("upgrade that forgets", from old, [
    "https://github.com/infinispan/infinispan-operator/pull/1297",
    "https://github.com/intel/pmem-csi/issues/595",
    "https://github.com/pravega/pravega-operator/issues/258",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Agent", namespaced)]
pub(crate) struct AgentSpec {
    image: String,
}

struct Operator {
    suffix: &'static str,
    fixed: bool,
}

impl Reconciler<Agent> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, agent: &Agent, ctx: &Context<Agent>) -> Result<Action, ClientError> {
        let name = format!("{}-{}", agent.name_any(), self.suffix);
        if ctx.get::<Pod>(&ctx.key().sibling(&name))?.is_none() {
            ctx.get_or_create_child(pod(named(&name), &agent.spec.image)).await?;
        }
        for pod in ctx.children::<Pod>()?.iter().filter(|pod| self.fixed && pod.name_any() != name) {
            ctx.delete(pod.as_ref()).any_version().await?;
        }
        Ok(Action::await_change())
    }
}

fn add(manager: Manager, operator: Operator) -> Manager {
    manager.kind::<Agent>().controller(Controller::<Agent>::new(operator).owns::<Pod>())
}

pub(crate) fn old(manager: Manager) -> Manager {
    add(manager, Operator { suffix: "tunnel", fixed: false })
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    add(manager, Operator { suffix: "router", fixed })
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Agent", "edge", json!({"image": "agent"}))).await;
    sim.until("it runs", |world| !world.list::<Pod>().is_empty()).await;
    sim.finally("one pod runs", |world| {
        let pods = world.list::<Pod>();
        world.list::<Agent>().iter().all(|it| pods.iter().filter(|pod| is_child_of(*pod, it)).count() == 1)
    });
    sim.advance(1.hours()).await;
}
