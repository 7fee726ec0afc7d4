//! A cleanup that ignores errors.
//!
//! The operator deletes an account in another namespace when its object is deleted, and doesn't look at the answer. A
//! refused or lost request leaves the account behind, and with the finalizer goes the last reminder of it.
//!
//! The fixed operator returns the error. The finalizer stays until a later run has succeeded.

use crate::kit::*;

bug!("cleanup that ignores errors", [
    "https://github.com/openkube-hub/KubeUser/issues/54",
    "https://github.com/open-cluster-management-io/work/pull/16",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Account", namespaced)]
pub(crate) struct AccountSpec {
    owner: String,
}

struct Operator {
    fixed: bool,
}

fn entry_of(account: &Account) -> ObjectKey {
    ObjectKey::namespaced("directory", &format!("account-{}", account.name_any()))
}

impl Reconciler<Account> for Operator {
    const FINALIZER: Option<&'static str> = Some("bugs.kubewright.dev/account");

    type Error = ClientError;

    async fn reconcile(&self, account: &Account, ctx: &Context<Account>) -> Result<Action, ClientError> {
        let key = entry_of(account);
        if ctx.get::<ConfigMap>(&key)?.is_none() && is_current(account, ctx).await? {
            let metadata = ObjectMeta { namespace: Some("directory".into()), ..named(key.name()) };
            ctx.apply(&config_map(metadata, "owner", &account.spec.owner)).await?;
        }
        Ok(Action::await_change())
    }

    async fn cleanup(&self, account: &Account, ctx: &Context<Account>) -> Result<Action, ClientError> {
        let deleted = ctx.client().kind::<ConfigMap>().delete(&entry_of(account)).await;
        if self.fixed {
            deleted?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Account>::new(Operator { fixed }).owns::<ConfigMap>();
    manager.kind::<Account>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    let has_entry = |world: &World| world.list::<ConfigMap>().iter().any(|map| map.name_any() == "account-ada");
    sim.apply(&namespace("directory")).await;
    sim.apply(&manifest("Account", "ada", json!({"owner": "ada"}))).await;
    sim.until("it is in the directory", has_entry).await;
    sim.delete::<Account>("ada").await;
    sim.finally("an account that is gone isn't in the directory", move |world| {
        world.get::<Account>("ada").is_some() || !has_entry(world)
    });
    sim.advance(1.hours()).await;
}
