//! Progress that is kept in memory.
//!
//! The operator starts an initialization for each object, and remembers for which it has. A restart, or another leader,
//! remembers nothing, and initializes again what is in use.
//!
//! The fixed operator looks for what an initialization leaves.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::kit::*;

bug!("in-memory state lost at restart", [
    "https://github.com/antrea-io/antrea/issues/829",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Volume", namespaced)]
pub(crate) struct VolumeSpec {
    size: String,
}

#[derive(Default)]
struct Operator {
    fixed: bool,
    formatted: Mutex<BTreeSet<Option<String>>>,
}

impl Reconciler<Volume> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, volume: &Volume, ctx: &Context<Volume>) -> Result<Action, ClientError> {
        if self.fixed {
            let name = format!("format-{}", volume.name_any());
            if ctx.get::<Pod>(&ctx.key().sibling(&name))?.is_none() {
                ctx.get_or_create_child(pod(named(&name), "mkfs")).await?;
            }
        } else if !self.formatted.lock().contains(&volume.metadata.uid) {
            ctx.create_child(pod(generated("format-"), "mkfs")).await?;
            self.formatted.lock().insert(volume.metadata.uid.clone());
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let operator = Operator { fixed, ..Operator::default() };
    manager.kind::<Volume>().controller(Controller::<Volume>::new(operator).owns::<Pod>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.always("a volume is formatted once", |world| {
        let pods = world.list::<Pod>();
        world.list::<Volume>().iter().all(|it| pods.iter().filter(|pod| is_child_of(*pod, it)).count() <= 1)
    });
    sim.apply(&manifest("Volume", "data", json!({"size": "1Gi"}))).await;
    sim.until("it is being formatted", |world| !world.list::<Pod>().is_empty()).await;
    sim.advance(2.hours()).await;
}
