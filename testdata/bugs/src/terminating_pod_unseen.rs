//! A state that was never observed.
//!
//! The operator deletes the claim of a pod when it sees the pod with a deletion timestamp. If the pod is gone before
//! the operator looks, because it was restarted or its events came late, it never sees the timestamp, and the claim
//! stays. Sieve calls the pattern "unobserved state".
//!
//! The fixed operator acts by what is there: a claim whose pod isn't wanted.

use crate::kit::*;

bug!("unobserved state", [
    "https://github.com/instaclustr/cassandra-operator/issues/398",
    "https://jira.percona.com/browse/K8SPSMDB-434",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Ring", namespaced)]
pub(crate) struct RingSpec {
    replicas: usize,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Ring> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, ring: &Ring, ctx: &Context<Ring>) -> Result<Action, ClientError> {
        let wanted: Vec<_> = (0..ring.spec.replicas).map(|index| format!("{}-{index}", ring.name_any())).collect();
        let (pods, claims) = (ctx.children::<Pod>()?, ctx.children::<PersistentVolumeClaim>()?);
        for name in &wanted {
            if !pods.iter().any(|pod| pod.name_any() == *name) {
                ctx.get_or_create_child(claim(named(name))).await?;
                ctx.get_or_create_child(pod(named(name), "ring")).await?;
            }
        }
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            if !wanted.contains(&pod.name_any()) && is_current(ring, ctx).await? {
                ctx.delete(pod.as_ref()).any_version().await?;
            }
        }
        for claim in claims.iter().filter(|claim| !wanted.contains(&claim.name_any())) {
            let pod = pods.iter().find(|pod| pod.name_any() == claim.name_any());
            let is_leaving = pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
            if (is_leaving || self.fixed) && is_current(ring, ctx).await? {
                ctx.delete(claim.as_ref()).any_version().await?;
            }
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Ring>::new(Operator { fixed }).owns::<Pod>().owns::<PersistentVolumeClaim>();
    manager.kind::<Ring>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    let count = |world: &World| (world.list::<Pod>().len(), world.list::<PersistentVolumeClaim>().len());
    sim.apply(&manifest("Ring", "nodes", json!({"replicas": 2}))).await;
    sim.until("two are there", move |world| count(world) == (2, 2)).await;
    sim.edit::<Ring>("nodes", json!({"spec": {"replicas": 1}})).await;
    sim.finally("as many claims as replicas", |world| {
        world.get::<Ring>("nodes").is_none_or(|it| world.list::<PersistentVolumeClaim>().len() == it.spec.replicas)
    });
    sim.advance(1.hours()).await;
}
