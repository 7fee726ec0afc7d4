//! A field that belongs to somebody else.
//!
//! The operator writes the number of replicas of its deployment in each run. An autoscaler, or a user who scales, sets
//! another one; the operator sees the change and takes it back.
//!
//! The fixed operator leaves the field out when scaling is left to others.

use k8s_openapi::{
    api::{apps::v1::{Deployment, DeploymentSpec}, core::v1::PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use crate::kit::*;

bug!("field of another controller overwritten", [
    "https://github.com/jaegertracing/jaeger-operator/issues/963",
    "https://github.com/apache/superset-kubernetes-operator/issues/151",
    "https://github.com/defilantech/LLMKube/issues/484",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Service", namespaced)]
pub(crate) struct ServiceSpec {
    image: String,
    autoscaling: bool,
}

struct Operator {
    fixed: bool,
}

impl Reconciler<Service> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, service: &Service, ctx: &Context<Service>) -> Result<Action, ClientError> {
        let labels = BTreeMap::from([("app".to_owned(), service.name_any())]);
        let template = PodTemplateSpec {
            metadata: Some(ObjectMeta { labels: Some(labels.clone()), ..ObjectMeta::default() }),
            spec: pod(ObjectMeta::default(), &service.spec.image).spec,
        };
        let selector = LabelSelector { match_labels: Some(labels), match_expressions: None };
        let replicas = Some(1).filter(|_| !(service.spec.autoscaling && self.fixed));
        let spec = DeploymentSpec { replicas, selector, template, ..DeploymentSpec::default() };
        let child = Deployment { metadata: named(&service.name_any()), spec: Some(spec), status: None };
        ctx.apply_child(child).force().await?;
        Ok(Action::await_change())
    }
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    manager.kind::<Service>().controller(Controller::<Service>::new(Operator { fixed }).owns::<Deployment>())
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Service", "shop", json!({"image": "shop", "autoscaling": true}))).await;
    sim.until("it is deployed", |world| world.get::<Deployment>("shop").is_some()).await;
    sim.advance(5.minutes()).await;
    // As the autoscaler does.
    sim.edit::<Deployment>("shop", json!({"spec": {"replicas": 3}})).await;
    sim.finally("the autoscaler's number is kept", |world| {
        let replicas = world.get::<Deployment>("shop").and_then(|deployment| deployment.spec?.replicas);
        replicas.is_none_or(|replicas| replicas == 3)
    });
    sim.advance(1.hours()).await;
}
