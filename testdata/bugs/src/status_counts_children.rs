//! The status as an input: how many children exist is remembered instead of counted.
//!
//! The operator creates as many members as the spec has more than the status says, and adds them to the status. The API
//! conventions ask that the status can be rebuilt by observation, since it may be lost: by a crash before it is
//! written, or by a backup that is restored without it. Then all members are created once more.
//!
//! The fixed operator counts what exists, and gives the members names of which each exists once.

use crate::kit::*;

bug!("status as input", [
    "https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#spec-and-status",
    "https://github.com/coralogix/coralogix-operator/pull/310",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Pool", namespaced, status = "PoolStatus")]
pub(crate) struct PoolSpec {
    members: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct PoolStatus {
    created: usize,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Pool> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, pool: &Pool, ctx: &Context<Pool>) -> Result<Action, ClientError> {
        if self.fixed {
            for index in 0..pool.spec.members {
                let name = format!("{}-{index}", pool.name_any());
                if ctx.get::<Pod>(&ctx.key().sibling(&name))?.is_none() {
                    ctx.get_or_create_child(pod(named(&name), "member")).await?;
                }
            }
        } else {
            let created = pool.status.as_ref().map_or(0, |status| status.created);
            for _ in created..pool.spec.members {
                ctx.create_child(pod(generated(&format!("{}-", pool.name_any())), "member")).await?;
            }
        }
        ctx.set_status(PoolStatus { created: pool.spec.members }).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Pool>().controller(Controller::<Pool>::new(Operator { fixed }).owns::<Pod>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.always("no more members than desired", |world| {
        let pods = world.list::<Pod>();
        let members = |pool: &Pool| pods.iter().filter(|pod| is_child_of(*pod, pool)).count();
        world.list::<Pool>().iter().all(|pool| members(pool) <= pool.spec.members)
    });
    sim.apply(&manifest("Pool", "brokers", json!({"members": 2}))).await;
    sim.until("two are created", |world| {
        world.get::<Pool>("brokers").is_some_and(|pool| pool.status.is_some_and(|status| status.created == 2))
    })
    .await;
    sim.edit::<Pool>("brokers", json!({"spec": {"members": 3}})).await;
    sim.advance(1.hours()).await;
}
