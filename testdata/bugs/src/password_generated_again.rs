//! A secret that is made twice.
//!
//! The operator generates a password into a secret, starts a database that takes it over at its first start, and notes
//! in the status that this is done. If it dies before the note, the next run generates another password over the first
//! one. The database has the first, its clients the second.
//!
//! The fixed operator creates the secret or takes the one that is there.

use crate::kit::*;

bug!("secret rotated twice", [
    "https://github.com/redhat-cop/vault-config-operator/issues/131",
    "https://github.com/upmc-enterprises/elasticsearch-operator/issues/81",
    "https://github.com/zalando/postgres-operator/pull/2043",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Database", namespaced, status = "DatabaseStatus")]
pub(crate) struct DatabaseSpec {
    user: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct DatabaseStatus {
    initialized: bool,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Database> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, database: &Database, ctx: &Context<Database>) -> Result<Action, ClientError> {
        if database.status.as_ref().is_some_and(|status| status.initialized) {
            return Ok(Action::await_change());
        }
        let name = database.name_any();
        let string_data = Some([("password".to_owned(), ctx.random().suffix(12))].into());
        let secret = Secret { metadata: named(&format!("{name}-password")), string_data, ..Secret::default() };
        let secret =
            if self.fixed { ctx.get_or_create_child(secret).await? } else { ctx.apply_child(secret).force().await? };
        let password = secret.data.and_then(|mut data| data.remove("password")).unwrap_or_default();
        // Stands for the database, which keeps the password of its first start.
        let volume = config_map(named(&format!("{name}-volume")), "password", &String::from_utf8_lossy(&password.0));
        ctx.get_or_create_child(volume).await?;
        ctx.set_status(DatabaseStatus { initialized: true }).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Database>::new(Operator { fixed }).owns::<Secret>().owns::<ConfigMap>();
    manager.kind::<Database>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Database", "orders", json!({"user": "shop"}))).await;
    sim.until("it is initialized", |world| {
        world.get::<Database>("orders").is_some_and(|it| it.status.is_some_and(|status| status.initialized))
    })
    .await;
    sim.finally("the database has the password of the secret", |world| {
        let secret = world.get::<Secret>("orders-password").and_then(|secret| secret.data);
        let volume = world.get::<ConfigMap>("orders-volume");
        let (Some(secret), Some(volume)) = (secret, volume) else { return true };
        secret["password"].0 == entry(&volume, "password").as_bytes()
    });
    sim.advance(1.hours()).await;
}
