//! Two writes in the wrong order.
//!
//! On a change of the version the operator points the route to the new release, and then creates the release. In
//! between, for ever if the creation is refused, the route leads nowhere.
//!
//! The fixed operator creates the release first, and deletes the old one last.

use crate::kit::*;

bug!("two writes without order", [
    "https://github.com/kubernetes/ingress-gce/issues/638",
    "https://github.com/kroxylicious/kroxylicious/issues/1902",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Release", namespaced)]
pub(crate) struct ReleaseSpec {
    version: String,
}

struct Operator {
    fixed: bool,
}

impl Operator {
    async fn switch(&self, release: &Release, to: &str, ctx: &Context<Release>) -> Result<(), ClientError> {
        let route = format!("{}-route", release.name_any());
        ctx.apply_child(config_map(named(&route), "to", to)).await.map(drop)
    }
}

impl Reconciler<Release> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, release: &Release, ctx: &Context<Release>) -> Result<Action, ClientError> {
        let name = format!("{}-{}", release.name_any(), release.spec.version);
        if !self.fixed {
            self.switch(release, &name, ctx).await?;
        }
        ctx.apply_child(config_map(named(&name), "version", &release.spec.version)).await?;
        if self.fixed {
            self.switch(release, &name, ctx).await?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Release>().controller(Controller::<Release>::new(Operator { fixed }).owns::<ConfigMap>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.always("the route leads to a release", |world| {
        let Some(route) = world.get::<ConfigMap>("shop-route") else { return true };
        // What is left of a deleted object is being collected.
        let is_live = world.get::<Release>("shop").is_some_and(|release| is_child_of(&route, &release));
        !is_live || world.get::<ConfigMap>(entry(&route, "to")).is_some()
    });
    let leads_to = |version: &'static str| {
        move |world: &World| world.get::<ConfigMap>("shop-route").is_some_and(|route| entry(&route, "to") == version)
    };
    sim.apply(&manifest("Release", "shop", json!({"version": "v1"}))).await;
    sim.until("it leads to the first", leads_to("shop-v1")).await;
    sim.edit::<Release>("shop", json!({"spec": {"version": "v2"}})).await;
    sim.until("it leads to the second", leads_to("shop-v2")).await;
    sim.advance(1.hours()).await;
}
