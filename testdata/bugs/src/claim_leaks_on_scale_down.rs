//! A crash between the deletions of a pod and of its claim.
//!
//! To scale down, the operator deletes the last pod, and then the claim with the same name. It finds the claims by the
//! pods. If it dies in between, there is no pod any more that leads to the claim, and the volume is paid for until
//! somebody notices.
//!
//! The fixed operator looks at the claims themselves.

use crate::kit::*;

bug!("crash between two writes leaks", [
    "https://github.com/apecloud/kubeblocks/issues/4378",
    "https://github.com/pravega/zookeeper-operator/pull/96",
    "https://github.com/indeedeng/rabbitmq-operator/issues/17",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Store", namespaced)]
pub(crate) struct StoreSpec {
    replicas: usize,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Store> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, store: &Store, ctx: &Context<Store>) -> Result<Action, ClientError> {
        let wanted: Vec<_> = (0..store.spec.replicas).map(|index| format!("{}-{index}", store.name_any())).collect();
        let (pods, claims) = (ctx.children::<Pod>()?, ctx.children::<PersistentVolumeClaim>()?);
        for name in &wanted {
            if !claims.iter().any(|claim| claim.name_any() == *name) {
                ctx.get_or_create_child(claim(named(name))).await?;
            }
            if !pods.iter().any(|pod| pod.name_any() == *name) {
                ctx.get_or_create_child(pod(named(name), "store")).await?;
            }
        }
        if (pods.len() <= wanted.len() && claims.len() <= wanted.len()) || !is_current(store, ctx).await? {
            return Ok(Action::await_change());
        }
        for pod in pods.iter().filter(|pod| !wanted.contains(&pod.name_any())) {
            ctx.delete(pod.as_ref()).any_version().await?;
            if let Some(claim) = claims.iter().find(|claim| claim.name_any() == pod.name_any()).filter(|_| !self.fixed) {
                ctx.delete(claim.as_ref()).any_version().await?;
            }
        }
        for claim in claims.iter().filter(|claim| self.fixed && !wanted.contains(&claim.name_any())) {
            ctx.delete(claim.as_ref()).any_version().await?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Store>::new(Operator { fixed }).owns::<Pod>().owns::<PersistentVolumeClaim>();
    manager.kind::<Store>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    let count = |world: &World| (world.list::<Pod>().len(), world.list::<PersistentVolumeClaim>().len());
    sim.apply(&manifest("Store", "kv", json!({"replicas": 2}))).await;
    sim.until("two are there", move |world| count(world) == (2, 2)).await;
    sim.edit::<Store>("kv", json!({"spec": {"replicas": 1}})).await;
    sim.finally("as many claims as replicas", |world| {
        world.get::<Store>("kv").is_none_or(|it| world.list::<PersistentVolumeClaim>().len() == it.spec.replicas)
    });
    sim.advance(1.hours()).await;
}
