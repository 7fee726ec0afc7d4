//! Finalizers of others that are removed with one's own.
//!
//! When its cleanup is done, the operator sets the list of finalizers to empty. Another controller, here a backup, has
//! its own finalizer on the object, and finds it gone before it has done its work.
//!
//! The fixed operator leaves it to the runtime, which removes the one name.

use crate::kit::*;

bug!("others' finalizers removed", [
    "https://github.com/ROCm/spur/pull/75",
    "https://github.com/grafana/grafana-operator/pull/2880",
    "https://github.com/tigera/operator/pull/4381",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Mailbox", namespaced)]
pub(crate) struct MailboxSpec {
    quota: String,
}

struct Operator {
    fixed: bool,
}

const BACKUP: &str = "example.com/backup";

impl Reconciler<Mailbox> for Operator {
    const FINALIZER: Option<&'static str> = Some("bugs.kubewright.dev/mailbox");

    type Error = ClientError;

    async fn reconcile(&self, mailbox: &Mailbox, ctx: &Context<Mailbox>) -> Result<Action, ClientError> {
        ctx.apply_child(config_map(named(&mailbox.name_any()), "quota", &mailbox.spec.quota)).await?;
        Ok(Action::await_change())
    }

    async fn cleanup(&self, _: &Mailbox, ctx: &Context<Mailbox>) -> Result<Action, ClientError> {
        if !self.fixed {
            let patch = Patch::Merge(json!({"metadata": {"finalizers": []}}));
            match ctx.patch::<Mailbox, _>(ctx.key(), &patch).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Mailbox>().controller(Controller::<Mailbox>::new(Operator { fixed }).owns::<ConfigMap>())
}

pub(crate) async fn scenario(sim: &Sim) {
    let metadata = json!({"name": "ada", "namespace": "default", "finalizers": [BACKUP]});
    let spec = json!({"quota": "1Gi"});
    sim.apply(&json!({"apiVersion": API, "kind": "Mailbox", "metadata": metadata, "spec": spec}).to_string()).await;
    sim.until("it is served", |world| world.get::<ConfigMap>("ada").is_some()).await;
    sim.delete::<Mailbox>("ada").await;
    sim.finally("the mailbox waits for its backup", |world| world.get::<Mailbox>("ada").is_some());
    sim.advance(1.hours()).await;
}
