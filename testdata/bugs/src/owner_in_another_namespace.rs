//! An owner in another namespace.
//!
//! The operator copies a config map to another namespace, and makes its object there the owner of the copy, so that it
//! goes with it. An owner reference has no namespace: the garbage collector looks for the owner beside the copy,
//! doesn't find it, and deletes the copy. It was made again, or not, and clusters worked for days until the controller
//! manager was restarted.
//!
//! The fixed operator deletes the copy in its cleanup.

use kube::Resource;

use crate::kit::*;

bug!("owner in another namespace", [
    "https://github.com/crossplane/crossplane/issues/895",
    "https://github.com/banzaicloud/koperator/issues/186",
    "https://github.com/openshift/aws-account-operator/pull/309",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Share", namespaced)]
pub(crate) struct ShareSpec {
    to: String,
}

struct Operator {
    fixed: bool,
}

fn copy_of(share: &Share) -> ObjectKey {
    ObjectKey::namespaced(&share.spec.to, &format!("shared-{}", share.name_any()))
}

impl Reconciler<Share> for Operator {
    const FINALIZER: Option<&'static str> = Some("bugs.kubewright.dev/share");

    type Error = ClientError;

    async fn reconcile(&self, share: &Share, ctx: &Context<Share>) -> Result<Action, ClientError> {
        let key = copy_of(share);
        if ctx.get::<ConfigMap>(&key)?.is_none() && is_current(share, ctx).await? {
            let owner_references = share.controller_owner_ref(&()).filter(|_| !self.fixed).map(|owner| vec![owner]);
            let namespace = key.namespace().map(Into::into);
            let metadata = ObjectMeta { owner_references, namespace, ..named(key.name()) };
            ctx.create(&config_map(metadata, "from", &share.name_any())).await?;
        }
        Ok(Action::await_change())
    }

    async fn cleanup(&self, share: &Share, ctx: &Context<Share>) -> Result<Action, ClientError> {
        ctx.client().kind::<ConfigMap>().delete(&copy_of(share)).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Share>::new(Operator { fixed }).owns::<ConfigMap>();
    manager.kind::<Share>().controller(controller.watches(|map: &ConfigMap, shares| {
        let all = shares.list(None, &Selector::default());
        all.iter().filter(|share| copy_of(share) == ObjectKey::of(map)).map(|share| ObjectKey::of(share.as_ref())).collect()
    }))
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&namespace("team")).await;
    sim.apply(&manifest("Share", "style", json!({"to": "team"}))).await;
    sim.finally("the copy is there", |world| {
        let copies = world.list::<ConfigMap>();
        world.list::<Share>().iter().all(|it| copies.iter().any(|map| ObjectKey::of(map) == copy_of(it)))
    });
    sim.advance(1.hours()).await;
}
