//! Objects of the same name in two namespaces that share a child.
//!
//! The operator writes each tenant's settings into one namespace, under the tenant's name. Tenants of two namespaces
//! that are called the same overwrite each other's settings. With cluster-scoped children, such as ClusterRoleBindings,
//! it is common.
//!
//! The fixed operator has the namespace in the name, with a separator that a namespace can't contain.

use crate::kit::*;

bug!("name collision across namespaces", [
    "https://github.com/Kuadrant/authorino-operator/issues/348",
    "https://github.com/operator-framework/operator-lifecycle-manager/issues/1392",
    "https://github.com/admiraltyio/admiralty/issues/53",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Tenant", namespaced)]
pub(crate) struct TenantSpec {
    tier: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Tenant> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, tenant: &Tenant, ctx: &Context<Tenant>) -> Result<Action, ClientError> {
        let name = if self.fixed {
            format!("tenant.{}.{}", tenant.namespace().unwrap_or_default(), tenant.name_any())
        } else {
            format!("tenant.{}", tenant.name_any())
        };
        let metadata = ObjectMeta { namespace: Some("settings".into()), ..named(&name) };
        ctx.apply(&config_map(metadata, "tier", &tenant.spec.tier)).force().await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Tenant>::new(Operator { fixed }).owns::<ConfigMap>();
    manager.kind::<Tenant>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    for name in ["settings", "north", "south"] {
        sim.apply(&namespace(name)).await;
    }
    sim.apply(&manifest_in("north", "Tenant", "shop", json!({"tier": "gold"}))).await;
    sim.apply(&manifest_in("south", "Tenant", "shop", json!({"tier": "free"}))).await;
    sim.finally("each tier is in the settings", |world| {
        let maps = world.list::<ConfigMap>();
        let has = |tier: &str| maps.iter().any(|map| entry(map, "tier") == tier);
        world.list::<Tenant>().iter().all(|tenant| has(&tenant.spec.tier))
    });
    sim.advance(1.hours()).await;
}
