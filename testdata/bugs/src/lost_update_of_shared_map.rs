//! A lost update.
//!
//! Each member enters itself into a list that all share. The operator reads the list from its cache, adds the name, and
//! writes the whole list. Two members that do so at the same time both add to the list without the other, and the
//! second write takes the first one back.
//!
//! The fixed operator writes the version that it has read, and tries again after a conflict.

use crate::kit::*;

bug!("lost update", [
    "https://github.com/chideat/valkey-operator/pull/108",
    "https://github.com/portworx/sched-ops/pull/403",
    "https://github.com/vmware-archive/kubeless/pull/428",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Member", namespaced)]
pub(crate) struct MemberSpec {
    club: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Member> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, member: &Member, ctx: &Context<Member>) -> Result<Action, ClientError> {
        let (name, key) = (member.name_any(), ctx.key().sibling(&member.spec.club));
        let Some(club) = ctx.get::<ConfigMap>(&key)? else {
            ctx.create(&config_map(named(key.name()), "members", &name)).await?;
            return Ok(Action::await_change());
        };
        let mut members: Vec<_> = entry(&club, "members").split(',').filter(|name| !name.is_empty()).collect();
        if members.contains(&&*name) {
            return Ok(Action::await_change());
        }
        members.push(&name);
        let version = club.metadata.resource_version.clone().filter(|_| self.fixed);
        let data = json!({"members": members.join(",")});
        let mut patch = json!({"metadata": {}, "data": data});
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        ctx.patch::<ConfigMap, _>(&key, &Patch::Merge(patch)).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Member>::new(Operator { fixed }).owns::<ConfigMap>().concurrency(4);
    manager.kind::<Member>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    for name in ["ada", "bob", "cyd", "dan"] {
        sim.apply(&manifest("Member", name, json!({"club": "chess"}))).await;
    }
    sim.finally("each member is on the list", |world| {
        let club = world.get::<ConfigMap>("chess");
        let has = |name: &str| club.as_ref().is_some_and(|club| entry(club, "members").split(',').any(|it| it == name));
        world.list::<Member>().iter().all(|member| has(&member.name_any()))
    });
    sim.advance(1.hours()).await;
}
