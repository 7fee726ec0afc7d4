//! A missing watch.
//!
//! The operator reads a secret that its object names. If the secret doesn't exist, it reports that, and waits for a
//! change, but the creation of the secret causes no reconcile. Users then edit the object, or restart the operator.
//!
//! The fixed operator watches the secret that it has read.

use crate::kit::*;

bug!("missing watch", [
    "https://github.com/kubernetes-sigs/mcp-lifecycle-operator/issues/92",
    "https://github.com/grafana/tempo-operator/issues/551",
    "https://github.com/tigera/operator/pull/624",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Mailer", namespaced)]
pub(crate) struct MailerSpec {
    secret: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Mailer> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, mailer: &Mailer, ctx: &Context<Mailer>) -> Result<Action, ClientError> {
        let key = ctx.key().sibling(&mailer.spec.secret);
        let is_there = if self.fixed {
            matches!(ctx.watch_object::<Secret>(&key), Ok(Some(_)))
        } else {
            ctx.live().get::<Secret>(&key).await?.is_some()
        };
        if is_there {
            ctx.apply_child(config_map(named(&mailer.name_any()), "secret", &mailer.spec.secret)).await?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let rule = PolicyRule::of::<Secret>([Verb::Get, Verb::List, Verb::Watch]);
    let controller = Controller::<Mailer>::new(Operator { fixed }).owns::<ConfigMap>().rbac(|role| role.allow(rule));
    manager.kind::<Mailer>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Mailer", "news", json!({"secret": "smtp"}))).await;
    sim.advance(1.minutes()).await;
    sim.apply(&user_secret("smtp")).await;
    sim.finally("it is configured", |world| {
        let maps = world.list::<ConfigMap>();
        world.list::<Mailer>().iter().all(|it| maps.iter().any(|map| is_child_of(map, it)))
    });
    sim.advance(1.hours()).await;
}
