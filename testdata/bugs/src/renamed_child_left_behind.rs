//! A child that is left behind when it gets another name.
//!
//! The spec says how the secret is called that the operator makes. When a user changes it, the operator makes the new
//! one, and the old one stays, with credentials that nobody thinks of. Acto reported it for MongoDB's operator twice.
//!
//! The fixed operator deletes children that the spec doesn't name.

use crate::kit::*;

bug!("renamed child leaks", [
    "https://github.com/mongodb/mongodb-kubernetes-operator/issues/1074",
    "https://github.com/xlab-uiuc/acto/issues/173",
    "https://github.com/aiven/aiven-operator/issues/48",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Credential", namespaced)]
pub(crate) struct CredentialSpec {
    secret: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Credential> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, credential: &Credential, ctx: &Context<Credential>) -> Result<Action, ClientError> {
        let name = &credential.spec.secret;
        if ctx.get::<Secret>(&ctx.key().sibling(name))?.is_none() {
            ctx.get_or_create_child(Secret { metadata: named(name), ..Secret::default() }).await?;
        }
        for secret in ctx.children::<Secret>()?.iter().filter(|secret| self.fixed && secret.name_any() != *name) {
            if is_current(credential, ctx).await? {
                ctx.delete(secret.as_ref()).any_version().await?;
            }
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Credential>().controller(Controller::<Credential>::new(Operator { fixed }).owns::<Secret>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Credential", "ada", json!({"secret": "ada-old"}))).await;
    sim.until("it has a secret", |world| world.get::<Secret>("ada-old").is_some()).await;
    sim.edit::<Credential>("ada", json!({"spec": {"secret": "ada-new"}})).await;
    sim.until("it has the new one", |world| world.get::<Secret>("ada-new").is_some()).await;
    sim.finally("it has one secret", |world| {
        let secrets = world.list::<Secret>();
        world.list::<Credential>().iter().all(|it| secrets.iter().filter(|secret| is_child_of(*secret, it)).count() == 1)
    });
    sim.advance(1.hours()).await;
}
