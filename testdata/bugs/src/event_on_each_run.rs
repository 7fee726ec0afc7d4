//! An event for each run.
//!
//! The operator records that it has synchronized its object, each time, with a note that differs. Events are objects:
//! they take place in etcd, and the one that matters isn't found among them.
//!
//! The fixed operator records a change.

use crate::kit::*;

bug!("events on each reconcile", [
    "https://github.com/apache/spark-kubernetes-operator/pull/861",
    "https://github.com/sky-uk/cassandra-operator/pull/200",
    "https://github.com/paperclipinc/openclaw-operator/pull/163",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Dashboard", namespaced)]
pub(crate) struct DashboardSpec {
    title: String,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Dashboard> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, dashboard: &Dashboard, ctx: &Context<Dashboard>) -> Result<Action, ClientError> {
        let known = ctx.get::<ConfigMap>(ctx.key())?;
        let differs = known.is_none_or(|known| entry(&known, "title") != dashboard.spec.title);
        if differs {
            ctx.apply_child(config_map(named(&dashboard.name_any()), "title", &dashboard.spec.title)).await?;
        }
        if differs || !self.fixed {
            ctx.record(Event::normal("Synchronized", format!("{} is up to date at {}", dashboard.spec.title, ctx.now())));
        }
        Ok(Action::requeue_after(Duration::from_secs(120)))
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Dashboard>::new(Operator { fixed }).owns::<ConfigMap>();
    manager.kind::<Dashboard>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Dashboard", "sales", json!({"title": "Sales"}))).await;
    sim.advance(2.hours()).await;
}
