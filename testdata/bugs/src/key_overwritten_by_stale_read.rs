//! A stale read that says that something isn't there.
//!
//! The operator generates a signing key if its cache has no secret. A restarted operator may be served a list from
//! before the secret was created; it then generates another key over the one in use, and all that was signed is
//! invalid.
//!
//! The fixed operator creates the secret, which the API server refuses if it is there.

use parking_lot::Mutex;

use crate::kit::*;

bug!("stale read that overwrites", [
    "https://github.com/elastic/cloud-on-k8s/issues/4956",
    "https://github.com/scylladb/scylla-operator/pull/2493",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Issuer", namespaced)]
pub(crate) struct IssuerSpec {
    audience: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Issuer> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, issuer: &Issuer, ctx: &Context<Issuer>) -> Result<Action, ClientError> {
        let name = format!("{}-key", issuer.name_any());
        if ctx.get::<Secret>(&ctx.key().sibling(&name))?.is_none() {
            let string_data = Some([("key".to_owned(), ctx.random().suffix(12))].into());
            let secret = Secret { metadata: named(&name), string_data, ..Secret::default() };
            if self.fixed {
                ctx.get_or_create_child(secret).await?;
            } else {
                ctx.apply_child(secret).force().await?;
            }
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Issuer>::new(Operator { fixed }).owns::<Secret>();
    manager.kind::<Issuer>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    // By UID: the key of another object of the same name may differ.
    let keys = Mutex::new(BTreeMap::new());
    sim.always("a secret keeps its key", move |world| {
        let mut keys = keys.lock();
        world.list::<Secret>().into_iter().all(|secret| {
            let known = keys.entry(secret.metadata.uid).or_insert_with(|| secret.data.clone());
            *known == secret.data
        })
    });
    sim.apply(&manifest("Issuer", "tokens", json!({"audience": "shop"}))).await;
    sim.until("it has a key", |world| world.get::<Secret>("tokens-key").is_some()).await;
    sim.advance(1.hours()).await;
}
