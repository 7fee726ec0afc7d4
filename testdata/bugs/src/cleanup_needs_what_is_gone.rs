//! A cleanup that needs what has been deleted before.
//!
//! To remove a user from a broker, the operator needs the broker's credentials from a secret. Somebody deletes both, or
//! their namespace, and the secret is gone first. The cleanup fails for ever, and the object and its namespace stay in
//! deletion.
//!
//! The fixed operator has nothing to clean up where it has no access any more.

use crate::kit::*;

bug!("cleanup that needs what is gone", [
    "https://github.com/rabbitmq/messaging-topology-operator/issues/277",
    "https://github.com/redhat-cop/vault-config-operator/issues/133",
    "https://github.com/Azure/azure-service-operator/issues/4679",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "User", namespaced)]
pub(crate) struct UserSpec {
    secret: String,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("there is no secret {0}")]
    NoSecret(ObjectKey),
}

struct Operator {
    fixed: bool,
}

impl Operator {
    async fn credentials(&self, user: &User, ctx: &Context<User>) -> Result<Secret, Error> {
        let key = ctx.key().sibling(&user.spec.secret);
        ctx.live().get::<Secret>(&key).await?.ok_or(Error::NoSecret(key))
    }
}

impl Reconciler<User> for Operator {
    const FINALIZER: Option<&'static str> = Some("bugs.kubewright.dev/user");

    type Error = Error;

    async fn reconcile(&self, user: &User, ctx: &Context<User>) -> Result<Action, Error> {
        if self.credentials(user, ctx).await.is_err() {
            return Ok(Action::requeue_after(Duration::from_secs(300)));
        }
        ctx.apply_child(config_map(named(&user.name_any()), "secret", &user.spec.secret)).await?;
        Ok(Action::await_change())
    }

    async fn cleanup(&self, user: &User, ctx: &Context<User>) -> Result<Action, Error> {
        match self.credentials(user, ctx).await {
            Err(Error::NoSecret(_)) if self.fixed => Ok(Action::await_change()),
            answer => answer.map(|_| Action::await_change()),
        }
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let rule = PolicyRule::of::<Secret>([Verb::Get]);
    let controller = Controller::<User>::new(Operator { fixed }).owns::<ConfigMap>().rbac(|role| role.allow(rule));
    manager.kind::<User>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&user_secret("broker")).await;
    sim.apply(&manifest("User", "ada", json!({"secret": "broker"}))).await;
    sim.until("it is served", |world| world.get::<ConfigMap>("ada").is_some()).await;
    sim.delete::<Secret>("broker").await;
    sim.delete::<User>("ada").await;
    sim.finally("it is gone", |world| world.get::<User>("ada").is_none());
    sim.advance(1.hours()).await;
}
