//! A child that several objects use, and one owns.
//!
//! The operator makes an account that all objects of the namespace share, owned by the object that came first. When
//! that is deleted, the garbage collector takes the account with it, and the others stop working.
//!
//! The fixed operator adds each object to the owners; the account goes with the last one.

use kubewright::owner::{has_owner, set_owner_reference};

use crate::kit::*;

bug!("shared child with one owner", [
    "https://github.com/kubevirtbmc/kubevirtbmc/issues/116",
    "https://github.com/openshift/cluster-node-tuning-operator/pull/90",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Session", namespaced)]
pub(crate) struct SessionSpec {
    user: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Session> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, session: &Session, ctx: &Context<Session>) -> Result<Action, ClientError> {
        let key = ctx.key().sibling("session-account");
        let uid = session.metadata.uid.clone().unwrap_or_default();
        let known = ctx.get::<ConfigMap>(&key)?;
        if known.as_ref().is_some_and(|known| has_owner(known.as_ref(), &uid) || !self.fixed) {
            return Ok(Action::await_change());
        }
        if !is_current(session, ctx).await? {
            return Ok(Action::await_change());
        }
        let mut account = config_map(ObjectMeta { namespace: session.namespace(), ..named(key.name()) }, "name", "session");
        if let Some(known) = &known {
            account = known.as_ref().clone();
        }
        if set_owner_reference(session, &mut account).is_ok() {
            match known {
                Some(_) => ctx.update(&account).await?,
                None => ctx.create(&account).await?,
            };
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let rule = PolicyRule::of::<ConfigMap>([Verb::Update]);
    let controller = Controller::<Session>::new(Operator { fixed }).owns_for_every_owner::<ConfigMap>();
    manager.kind::<Session>().controller(controller.rbac(|role| role.allow(rule)))
}

pub(crate) async fn scenario(sim: &Sim) {
    let has_account = |world: &World| world.get::<ConfigMap>("session-account").is_some();
    sim.apply(&manifest("Session", "first", json!({"user": "ada"}))).await;
    sim.until("there is an account", has_account).await;
    sim.apply(&manifest("Session", "second", json!({"user": "bob"}))).await;
    sim.advance(10.minutes()).await;
    sim.delete::<Session>("first").await;
    sim.finally("there is an account while there are sessions", move |world| {
        world.list::<Session>().is_empty() || has_account(world)
    });
    sim.advance(1.hours()).await;
}
