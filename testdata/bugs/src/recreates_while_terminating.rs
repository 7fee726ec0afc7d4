//! Children that are created while their parent is being deleted.
//!
//! The cleanup begins, as each run does, with a pass over the children that creates what is missing, and then deletes
//! them. The deletion never ends: each run makes a child that the next one waits for. Operators without a finalizer
//! have it with objects that are deleted in the foreground. In a namespace that is being deleted, the creation is
//! refused instead, and the finalizer stays for ever.
//!
//! The fixed operator only deletes in its cleanup.

use kube::Resource;

use crate::kit::*;

bug!("creation while the parent is being deleted", [
    "https://github.com/banzaicloud/koperator/issues/414",
    "https://github.com/open-telemetry/opentelemetry-operator/issues/2364",
    "https://github.com/VictoriaMetrics/operator/issues/132",
    "https://github.com/tektoncd/operator/issues/773",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Queue", namespaced)]
pub(crate) struct QueueSpec {
    shards: usize,
}

struct Operator {
    fixed: bool,
}

impl Operator {
    async fn create(&self, queue: &Queue, ctx: &Context<Queue>) -> Result<(), ClientError> {
        let children = ctx.children::<ConfigMap>()?;
        for index in 0..queue.spec.shards {
            let name = format!("{}-{index}", queue.name_any());
            if !children.iter().any(|child| child.name_any() == name) {
                let owner_references = queue.controller_owner_ref(&()).map(|owner| vec![owner]);
                let metadata = ObjectMeta { owner_references, ..named(&name) };
                ctx.create(&config_map(metadata, "shard", &index.to_string())).await?;
            }
        }
        Ok(())
    }
}

impl Reconciler<Queue> for Operator {
    const FINALIZER: Option<&'static str> = Some("bugs.kubewright.dev/queue");

    type Error = ClientError;

    async fn reconcile(&self, queue: &Queue, ctx: &Context<Queue>) -> Result<Action, ClientError> {
        // Children of an object that is gone would be collected, and made again, until the cache has caught up.
        if is_current(queue, ctx).await? {
            self.create(queue, ctx).await?;
        }
        Ok(Action::await_change())
    }

    async fn cleanup(&self, queue: &Queue, ctx: &Context<Queue>) -> Result<Action, ClientError> {
        if !self.fixed {
            self.create(queue, ctx).await?;
        }
        let children = ctx.children::<ConfigMap>()?;
        for child in &children {
            ctx.delete(child.as_ref()).any_version().await?;
        }
        let wait = Action::requeue_after(Duration::from_secs(5));
        Ok(if children.is_empty() && self.fixed { Action::await_change() } else { wait })
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Queue>().controller(Controller::<Queue>::new(Operator { fixed }).owns::<ConfigMap>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Queue", "mail", json!({"shards": 2}))).await;
    sim.until("it has shards", |world| world.get::<ConfigMap>("mail-1").is_some()).await;
    sim.delete::<Queue>("mail").await;
    sim.finally("it is gone", |world| world.get::<Queue>("mail").is_none());
    sim.advance(1.hours()).await;
}
