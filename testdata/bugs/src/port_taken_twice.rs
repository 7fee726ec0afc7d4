//! A number that is given twice.
//!
//! The operator gives each object the lowest port that no other object has in its status, as its cache shows them. What
//! has just been given to another object isn't in the cache yet, so both get the same port.
//!
//! The fixed operator takes a port by creating an object that bears its number, which succeeds once.

use crate::kit::*;

bug!("allocation from a cache", [
    "https://github.com/kubernetes/kubernetes/issues/85894",
    "https://github.com/kubernetes/kubernetes/issues/64466",
    "https://github.com/RTradeLtd/Nexus/pull/7",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Endpoint", namespaced, status = "EndpointStatus")]
pub(crate) struct EndpointSpec {
    backend: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct EndpointStatus {
    port: Option<u16>,
}

struct Operator {
    fixed: bool,
}

impl Operator {
    async fn take(&self, ctx: &Context<Endpoint>) -> Result<Option<u16>, ClientError> {
        let others = ctx.list::<Endpoint>(&Selector::default())?;
        let taken: Vec<_> = others.iter().filter_map(|other| other.status.as_ref()?.port).collect();
        let mut free = (30_000..30_100).filter(|port| !taken.contains(port));
        if !self.fixed {
            return Ok(free.next());
        }
        for port in free {
            let number = port.to_string();
            match ctx.get_or_create_child(config_map(named(&format!("port-{number}")), "port", &number)).await {
                Err(ClientError::NameTaken { .. }) => {}
                answer => return answer.map(|_| Some(port)),
            }
        }
        Ok(None)
    }
}

impl Reconciler<Endpoint> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, endpoint: &Endpoint, ctx: &Context<Endpoint>) -> Result<Action, ClientError> {
        let known = endpoint.status.as_ref().and_then(|status| status.port);
        let held = ctx.children::<ConfigMap>()?.first().and_then(|map| entry(map, "port").parse().ok());
        let port = match known.or(held) {
            Some(port) => Some(port),
            None => self.take(ctx).await?,
        };
        ctx.set_status(EndpointStatus { port }).await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Endpoint>::new(Operator { fixed }).owns::<ConfigMap>().concurrency(4);
    manager.kind::<Endpoint>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.always("a port is given once", |world| {
        let ports: Vec<_> = world.list::<Endpoint>().into_iter().filter_map(|it| it.status?.port).collect();
        ports.iter().all(|port| ports.iter().filter(|other| *other == port).count() == 1)
    });
    for name in ["api", "mail", "web"] {
        sim.apply(&manifest("Endpoint", name, json!({"backend": name}))).await;
    }
    sim.advance(1.hours()).await;
}
