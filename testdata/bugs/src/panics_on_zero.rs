//! A value that nobody has thought of.
//!
//! The operator assigns its object's entries to shards. With no shards, which the schema allows and with which one
//! pauses it, the remainder of the division by zero is a panic. Acto generates such values from the schema.
//!
//! The fixed operator has nothing to do then.

use crate::kit::*;

bug!("panic on an allowed value", [
    "https://github.com/ai-dynamo/dynamo/issues/6673",
    "https://github.com/Altinity/clickhouse-operator/issues/1319",
    "https://github.com/kubeflow/mpi-operator/issues/274",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Index", namespaced)]
pub(crate) struct IndexSpec {
    shards: usize,
    entries: Vec<String>,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Index> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, index: &Index, ctx: &Context<Index>) -> Result<Action, ClientError> {
        let IndexSpec { shards, entries } = &index.spec;
        if *shards == 0 && self.fixed {
            return Ok(Action::await_change());
        }
        let assigned: Vec<_> = entries.iter().enumerate().map(|(at, it)| format!("{}={it}", at % shards)).collect();
        ctx.apply_child(config_map(named(&index.name_any()), "assigned", &assigned.join("\n"))).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Index>().controller(Controller::<Index>::new(Operator { fixed }).owns::<ConfigMap>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Index", "words", json!({"shards": 2, "entries": ["a", "b", "c"]}))).await;
    sim.until("it is assigned", |world| world.get::<ConfigMap>("words").is_some()).await;
    sim.edit::<Index>("words", json!({"spec": {"shards": 0}})).await;
    sim.advance(1.hours()).await;
}
