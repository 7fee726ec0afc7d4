//! Long names that become the same when they are cut off.
//!
//! A name may have 253 characters, but a label's value and the name of a Service only 63. The operator cuts the name of
//! its child off there. Two objects whose names begin alike then want the same child: the second one never gets it.
//!
//! The fixed operator shortens with a hash of the whole name.

use kubewright::name::shorten;

use crate::kit::*;

bug!("truncated names collide", [
    "https://github.com/kubernetes/ingress-gce/issues/537",
    "https://github.com/keycloak/keycloak/issues/20854",
    "https://github.com/port-labs/helm-charts/pull/306",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Pipeline", namespaced)]
pub(crate) struct PipelineSpec {
    steps: usize,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Pipeline> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, pipeline: &Pipeline, ctx: &Context<Pipeline>) -> Result<Action, ClientError> {
        let name = pipeline.name_any();
        let name = if self.fixed { shorten(&name, 63) } else { name.chars().take(63).collect() };
        match ctx.get_or_create_child(config_map(named(&name), "steps", &pipeline.spec.steps.to_string())).await {
            // It is somebody else's, and no retry will change that.
            Err(ClientError::NameTaken { .. }) => Ok(Action::await_change()),
            answer => answer.map(|_| Action::await_change()),
        }
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    let controller = Controller::<Pipeline>::new(Operator { fixed }).owns::<ConfigMap>();
    manager.kind::<Pipeline>().controller(controller)
}

pub(crate) async fn scenario(sim: &Sim) {
    let name = |end: &str| format!("{}-{end}", "nightly-integration-of-the-payment-service-with-all-its-clients");
    sim.apply(&manifest("Pipeline", &name("amd64"), json!({"steps": 3}))).await;
    sim.apply(&manifest("Pipeline", &name("arm64"), json!({"steps": 4}))).await;
    sim.finally("each pipeline has its config map", |world| {
        let maps = world.list::<ConfigMap>();
        world.list::<Pipeline>().iter().all(|pipeline| maps.iter().any(|map| is_child_of(map, pipeline)))
    });
    sim.advance(1.hours()).await;
}
