//! An upgrade that changes what can't be changed.
//!
//! The new version of the operator has another label in the selector of its deployment. The selector of a deployment is
//! immutable: after the upgrade every update is refused, and no change of the spec arrives any more.
//!
//! The fixed operator keeps the selector of a deployment that exists.

use k8s_openapi::{
    api::{apps::v1::{Deployment, DeploymentSpec}, core::v1::PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use crate::kit::*;

bug!("upgrade of an immutable field", from old, [
    "https://github.com/cryostatio/cryostat-operator/issues/1301",
    "https://github.com/opendatahub-io/opendatahub-operator/issues/746",
    "https://github.com/grafana/tempo-operator/pull/432",
]);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bugs.kubewright.dev", version = "v1", kind = "Console", namespaced)]
pub(crate) struct ConsoleSpec {
    image: String,
}

struct Operator {
    key: &'static str,
    fixed: bool,
}

impl Reconciler<Console> for Operator {
    type Error = ClientError;

    async fn reconcile(&self, console: &Console, ctx: &Context<Console>) -> Result<Action, ClientError> {
        let known = ctx.get::<Deployment>(ctx.key())?.filter(|_| self.fixed);
        let known = known.and_then(|known| known.spec.as_ref()?.selector.match_labels.clone());
        let labels = known.unwrap_or_else(|| [(self.key.to_owned(), console.name_any())].into());
        let template = PodTemplateSpec {
            metadata: Some(ObjectMeta { labels: Some(labels.clone()), ..ObjectMeta::default() }),
            spec: pod(ObjectMeta::default(), &console.spec.image).spec,
        };
        let selector = LabelSelector { match_labels: Some(labels), match_expressions: None };
        let spec = DeploymentSpec { replicas: Some(1), selector, template, ..DeploymentSpec::default() };
        let child = Deployment { metadata: named(&console.name_any()), spec: Some(spec), status: None };
        ctx.apply_child(child).force().await?;
        Ok(Action::await_change())
    }
}

fn add(manager: Manager, operator: Operator) -> Manager {
    manager.kind::<Console>().controller(Controller::<Console>::new(operator).owns::<Deployment>())
}

pub(crate) fn old(manager: Manager) -> Manager {
    add(manager, Operator { key: "app", fixed: false })
}

pub(crate) fn register(manager: Manager, fixed: bool) -> Manager {
    add(manager, Operator { key: "app.kubernetes.io/instance", fixed })
}

pub(crate) async fn scenario(sim: &Sim) {
    sim.apply(&manifest("Console", "admin", json!({"image": "console-v1"}))).await;
    sim.until("it is deployed", |world| world.get::<Deployment>("admin").is_some()).await;
    sim.advance(10.minutes()).await;
    sim.edit::<Console>("admin", json!({"spec": {"image": "console-v2"}})).await;
    sim.finally("the image is deployed", |world| {
        let deployment = world.get::<Deployment>("admin");
        let image = deployment.and_then(|it| it.spec?.template.spec?.containers.into_iter().next()?.image);
        world.get::<Console>("admin").is_none_or(|console| image == Some(console.spec.image))
    });
    sim.advance(1.hours()).await;
}
