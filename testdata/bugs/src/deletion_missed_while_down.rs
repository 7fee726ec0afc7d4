//! A deletion while the operator isn't running.
//!
//! The operator allocates an address from a pool for each object, and releases it when it receives the deletion of the
//! object. It doesn't receive the deletions that happen while it isn't running, and never releases these addresses.
//!
//! The fixed operator has a finalizer on its objects until it has released the address.

use crate::kit::*;

bug!("deletion missed while down", [
    "https://github.com/antrea-io/antrea/issues/829",
    "https://github.com/antrea-io/antrea/issues/3384",
    "https://github.com/zalando/postgres-operator/pull/941",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Address", namespaced)]
pub(crate) struct AddressSpec {
    pool: String,
}

struct Operator<const MENDED: bool>;

/// The entry of the pool that an object takes. Entries aren't children, since they are kept with the pool.
fn lease(key: &ObjectKey) -> ObjectKey {
    ObjectKey::namespaced("pool", &format!("lease-{}", key.name()))
}

impl<const MENDED: bool> Reconciler<Address> for Operator<MENDED> {
    const FINALIZER: Option<&'static str> = if MENDED { Some("bugs.kubewright.dev/address") } else { None };

    type Error = ClientError;

    async fn reconcile(&self, address: &Address, ctx: &Context<Address>) -> Result<Action, ClientError> {
        let key = lease(ctx.key());
        if ctx.get::<ConfigMap>(&key)?.is_none() && is_current(address, ctx).await? {
            let metadata = ObjectMeta { namespace: Some("pool".into()), ..named(key.name()) };
            ctx.apply(&config_map(metadata, "holder", &address.name_any())).await?;
        }
        Ok(Action::await_change())
    }

    async fn cleanup(&self, _: &Address, ctx: &Context<Address>) -> Result<Action, ClientError> {
        if MENDED {
            ctx.client().kind::<ConfigMap>().delete(&lease(ctx.key())).await?;
        }
        Ok(Action::await_change())
    }

    async fn deleted(&self, key: &ObjectKey, ctx: &Context<Address>) -> Result<(), ClientError> {
        if MENDED { Ok(()) } else { ctx.client().kind::<ConfigMap>().delete(&lease(key)).await }
    }
}

fn add<const MENDED: bool>(manager: Manager) -> Manager {
    manager.kind::<Address>().controller(Controller::<Address>::new(Operator::<MENDED>).owns::<ConfigMap>())
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    if fixed { add::<true>(manager) } else { add::<false>(manager) }
}

pub(crate) async fn scenario(sim: &Sim) {
    let has_lease = |world: &World| world.list::<ConfigMap>().iter().any(|map| map.name_any() == "lease-web");
    sim.apply(&namespace("pool")).await;
    sim.apply(&manifest("Address", "web", json!({"pool": "public"}))).await;
    sim.until("it has an address", has_lease).await;
    sim.advance(5.minutes()).await;
    sim.delete::<Address>("web").await;
    sim.finally("an address that is gone is back in the pool", move |world| {
        world.get::<Address>("web").is_some() || !has_lease(world)
    });
    sim.advance(1.hours()).await;
}
