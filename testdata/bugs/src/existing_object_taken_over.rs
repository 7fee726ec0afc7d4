//! An object that exists already, taken for one's own.
//!
//! The operator creates a config map, and is content if the API server says that it exists. It may be a user's, of
//! another content; and when the operator's object is deleted, the cleanup deletes the user's config map.
//!
//! The fixed operator makes its child a child, and takes no other for it.

use crate::kit::*;

bug!("an existing object taken for one's own", [
    "https://github.com/openshift/zero-trust-workload-identity-manager/pull/158",
    "https://github.com/redpanda-data/redpanda-operator/issues/105",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Theme", namespaced)]
pub(crate) struct ThemeSpec {
    color: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Theme> for Operator {
    const FINALIZER: Option<&'static str> = Some("bugs.kubewright.dev/theme");

    type Error = ClientError;

    async fn reconcile(&self, theme: &Theme, ctx: &Context<Theme>) -> Result<Action, ClientError> {
        let map = config_map(named(&format!("{}-theme", theme.name_any())), "color", &theme.spec.color);
        let created = if self.fixed { ctx.get_or_create_child(map).await } else { ctx.create(&map).await };
        match created {
            // A user has to rename one of them; the status would say so.
            Err(ClientError::NameTaken { .. }) => Ok(Action::await_change()),
            Err(error) if error.is_already_exists() && !self.fixed => Ok(Action::await_change()),
            answer => answer.map(|_| Action::await_change()),
        }
    }

    async fn cleanup(&self, theme: &Theme, ctx: &Context<Theme>) -> Result<Action, ClientError> {
        if !self.fixed {
            let key = ctx.key().sibling(&format!("{}-theme", theme.name_any()));
            ctx.client().kind::<ConfigMap>().delete(&key).await?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Theme>().controller(Controller::<Theme>::new(Operator { fixed }).owns::<ConfigMap>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&user_map("shop-theme", "color", "mine")).await;
    sim.apply(&manifest("Theme", "shop", json!({"color": "red"}))).await;
    sim.advance(1.minutes()).await;
    sim.delete::<Theme>("shop").await;
    sim.finally("the user's config map is there", |world| {
        world.get::<ConfigMap>("shop-theme").is_some_and(|map| entry(&map, "color") == "mine")
    });
    sim.advance(1.hours()).await;
}
