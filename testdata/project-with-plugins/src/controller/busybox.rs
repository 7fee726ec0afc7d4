//! The reconciler for `Busybox`, which runs an image in a Deployment.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            Capabilities, Container, PodSpec, PodTemplateSpec, SeccompProfile, SecurityContext,
        },
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::ResourceExt;
use kubewright::{name::shorten, prelude::*};

use crate::api::v1::Busybox;

/// The image, unless the environment of the operator names another one.
const IMAGE: &str = "busybox:1.37";
/// The name of that variable, which config/manager/manager.yaml sets.
const IMAGE_VARIABLE: &str = "BUSYBOX_IMAGE";

/// Returns the controller.
pub(crate) fn controller() -> Controller<Busybox> {
    Controller::new(BusyboxReconciler)
        .name("busybox")
        .owns::<Deployment>()
}

struct BusyboxReconciler;

impl Reconciler<Busybox> for BusyboxReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &Busybox,
        ctx: &Context<Busybox>,
    ) -> Result<Action, ClientError> {
        let deployment = ctx.apply_child(deployment(object)).await?;
        let (wanted, ready) = (size(object), ready(&deployment));
        let mut status = object.status.clone().unwrap_or_default();
        let generation = object.metadata.generation;
        let mut conditions = Conditions::new(&mut status.conditions, generation, ctx.now());
        let message = format!("{ready} of {wanted} pods are ready");
        if ready == wanted {
            conditions.set("Ready", ConditionStatus::True, "Available", &message);
        } else {
            conditions.set("Ready", ConditionStatus::False, "Progressing", &message);
        }
        ctx.set_status(status).await?;
        Ok(Action::await_change())
    }
}

/// Returns the wanted number of pods.
fn size(object: &Busybox) -> i32 {
    object.spec.size.unwrap_or(1)
}

/// Returns the number of ready pods of the wanted state; 0 before the Deployment controller has seen it.
fn ready(deployment: &Deployment) -> i32 {
    let status = deployment.status.as_ref();
    let is_current =
        status.and_then(|status| status.observed_generation) == deployment.metadata.generation;
    let replicas = status.and_then(|status| status.ready_replicas);
    replicas.filter(|_| is_current).unwrap_or(0)
}

/// Returns the Deployment, with the fields that the operator decides about.
fn deployment(object: &Busybox) -> Deployment {
    let instance = shorten(&object.name_any(), 63);
    let labels = BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), "busybox".to_owned()),
        ("app.kubernetes.io/instance".to_owned(), instance),
    ]);
    Deployment {
        metadata: ObjectMeta {
            name: object.metadata.name.clone(),
            namespace: object.metadata.namespace.clone(),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: Some(size(object)),
            selector: LabelSelector {
                match_labels: Some(labels.clone()),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    containers: vec![container()],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// Returns the container, which complies with the Pod Security Standard `restricted`.
fn container() -> Container {
    let image = std::env::var(IMAGE_VARIABLE).unwrap_or_else(|_| IMAGE.into());
    Container {
        name: "busybox".into(),
        image: Some(image),
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".into()]),
                ..Capabilities::default()
            }),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".into(),
                ..SeccompProfile::default()
            }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}
