//! Two parts joined to a name from which they can't be told any more.
//!
//! The operator names a grant after user and role, with a dash between them, which both may contain: `ops-read` for
//! `all` and `ops` for `read-all` are the same name. The second grant overwrites the first, or is never made.
//!
//! The fixed operator joins them by a character that neither contains.

use crate::kit::*;

bug!("joined names collide", [
    "https://github.com/admiraltyio/admiralty/issues/53",
    "https://github.com/cryostatio/cryostat-operator/issues/524",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Grant", namespaced)]
pub(crate) struct GrantSpec {
    role: String,
    user: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Grant> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, grant: &Grant, ctx: &Context<Grant>) -> Result<Action, ClientError> {
        let GrantSpec { role, user } = &grant.spec;
        let separator = if self.fixed { '.' } else { '-' };
        let name = format!("grant-{role}{separator}{user}");
        match ctx.get_or_create_child(config_map(named(&name), "user", user)).await {
            // Another grant says the same already.
            Err(ClientError::NameTaken { .. }) => Ok(Action::await_change()),
            answer => answer.map(|_| Action::await_change()),
        }
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Grant>().controller(Controller::<Grant>::new(Operator { fixed }).owns::<ConfigMap>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Grant", "one", json!({"role": "read", "user": "all-ops"}))).await;
    sim.apply(&manifest("Grant", "two", json!({"role": "read-all", "user": "ops"}))).await;
    sim.finally("each grant is made", |world| {
        let maps = world.list::<ConfigMap>();
        world.list::<Grant>().iter().all(|grant| maps.iter().any(|map| is_child_of(map, grant)))
    });
    sim.advance(1.hours()).await;
}
