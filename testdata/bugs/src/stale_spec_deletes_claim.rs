//! A deletion decided by a stale read.
//!
//! The operator deletes a volume claim when the spec no longer asks for storage. A restarted operator may be served a
//! list from before the user's last edit, and then deletes the claim that was made after it, with the data. Kubernetes
//! had this with StatefulSets and nodes first (kubernetes/kubernetes#59848); Sieve (OSDI '22, "stale state") found it
//! in seven operators.
//!
//! The fixed operator asks the API server whether its object is still as it was read, and deletes the claim only if
//! that is the one it has read.

use crate::kit::*;

bug!("stale read that deletes", [
    "https://github.com/instaclustr/cassandra-operator/issues/402",
    "https://github.com/pravega/zookeeper-operator/issues/314",
    "https://github.com/rabbitmq/cluster-operator/issues/653",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Archive", namespaced)]
pub(crate) struct ArchiveSpec {
    storage: bool,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Archive> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, archive: &Archive, ctx: &Context<Archive>) -> Result<Action, ClientError> {
        let name = format!("{}-data", archive.name_any());
        let known = ctx.get::<PersistentVolumeClaim>(&ctx.key().sibling(&name))?;
        let Some(known) = known else {
            if archive.spec.storage {
                ctx.get_or_create_child(claim(named(&name))).await?;
            }
            return Ok(Action::await_change());
        };
        if !archive.spec.storage && self.fixed {
            if is_current(archive, ctx).await? {
                ctx.delete(known.as_ref()).any_version().await?;
            }
        } else if !archive.spec.storage {
            ctx.client().kind::<PersistentVolumeClaim>().delete(&ObjectKey::of(known.as_ref())).await?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Archive>::new(Operator { fixed }).owns::<PersistentVolumeClaim>();
    manager.kind::<Archive>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    let has_claim = |world: &World| !world.list::<PersistentVolumeClaim>().is_empty();
    sim.apply(&manifest("Archive", "orders", json!({"storage": true}))).await;
    sim.until("it has a claim", has_claim).await;
    sim.edit::<Archive>("orders", json!({"spec": {"storage": false}})).await;
    sim.until("the claim is gone", move |world| !has_claim(world)).await;
    sim.edit::<Archive>("orders", json!({"spec": {"storage": true}})).await;
    sim.until("it has a claim again", has_claim).await;
    sim.edit::<PersistentVolumeClaim>("orders-data", json!({"metadata": {"annotations": {"data": "precious"}}})).await;
    sim.finally("the data is there", |world| {
        let wanted = world.get::<Archive>("orders").is_some_and(|archive| archive.spec.storage);
        let claim = world.get::<PersistentVolumeClaim>("orders-data");
        !wanted || claim.is_some_and(|claim| claim.annotations().contains_key("data"))
    });
    sim.advance(2.hours()).await;
}
