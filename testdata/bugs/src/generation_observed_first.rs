//! A generation that is called observed before the work is done.
//!
//! The operator skips an object whose `observedGeneration` is its generation, and writes that field before it changes
//! the child. If it dies in between, or if the change fails, the child keeps the old state: every later run believes
//! that it is done.
//!
//! The fixed operator writes the status last, and applies the child whatever the status says: a process that was
//! restarted at an API server that is behind may have applied an older state.

use crate::kit::*;

bug!("observedGeneration set before the work", [
    "https://github.com/kubernetes-retired/service-catalog/issues/1747",
    "https://github.com/kubernetes-sigs/cluster-api/pull/10736",
    "https://github.com/knative/serving/pull/6163",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Proxy", namespaced, status = "ProxyStatus")]
pub(crate) struct ProxySpec {
    upstream: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProxyStatus {
    observed_generation: Option<i64>,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Proxy> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, proxy: &Proxy, ctx: &Context<Proxy>) -> Result<Action, ClientError> {
        let status = ProxyStatus { observed_generation: proxy.metadata.generation };
        if !self.fixed && proxy.status.as_ref() == Some(&status) {
            return Ok(Action::await_change());
        }
        let child = config_map(named(&format!("{}-proxy", proxy.name_any())), "upstream", &proxy.spec.upstream);
        if self.fixed {
            ctx.apply_child(child).await?;
            ctx.set_status(status).await?;
        } else {
            ctx.set_status(status).await?;
            ctx.apply_child(child).await?;
        }
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Proxy>::new(Operator { fixed }).owns::<ConfigMap>();
    manager.kind::<Proxy>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    let is_applied = |world: &World| {
        let map = world.get::<ConfigMap>("edge-proxy");
        let upstream = map.map(|map| entry(&map, "upstream").to_owned());
        world.get::<Proxy>("edge").is_none_or(|proxy| upstream == Some(proxy.spec.upstream))
    };
    sim.apply(&manifest("Proxy", "edge", json!({"upstream": "a"}))).await;
    sim.until("it is applied", is_applied).await;
    sim.edit::<Proxy>("edge", json!({"spec": {"upstream": "b"}})).await;
    sim.finally("the spec is applied", is_applied);
    sim.advance(1.hours()).await;
}
