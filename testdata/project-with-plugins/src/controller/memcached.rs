//! The reconciler for `Memcached`, which runs an image in a Deployment.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            Capabilities, Container, ContainerPort, PodSpec, PodTemplateSpec, SeccompProfile,
            SecurityContext,
        },
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::ResourceExt;
use kubewright::{name::shorten, prelude::*};

use crate::api::v1::Memcached;

/// The image, unless the environment of the operator names another one.
const IMAGE: &str = "memcached:1.6-alpine";
/// The name of that variable, which config/manager/manager.yaml sets.
const IMAGE_VARIABLE: &str = "MEMCACHED_IMAGE";

/// Returns the controller.
pub(crate) fn controller() -> Controller<Memcached> {
    Controller::new(MemcachedReconciler)
        .name("memcached")
        .owns::<Deployment>()
}

struct MemcachedReconciler;

impl Reconciler<Memcached> for MemcachedReconciler {
    type Error = ClientError;

    async fn reconcile(
        &self,
        object: &Memcached,
        ctx: &Context<Memcached>,
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
fn size(object: &Memcached) -> i32 {
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
fn deployment(object: &Memcached) -> Deployment {
    let instance = shorten(&object.name_any(), 63);
    let labels = BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), "memcached".to_owned()),
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
                    containers: vec![container(object)],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// Returns the container, which complies with the Pod Security Standard `restricted`.
fn container(object: &Memcached) -> Container {
    let image = std::env::var(IMAGE_VARIABLE).unwrap_or_else(|_| IMAGE.into());
    Container {
        name: "memcached".into(),
        image: Some(image),
        command: Some(vec![
            "memcached".into(),
            "--memory-limit=64".into(),
            "-o".into(),
            "modern".into(),
            "-v".into(),
        ]),
        ports: Some(vec![ContainerPort {
            container_port: object.spec.container_port.unwrap_or(11211),
            ..ContainerPort::default()
        }]),
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(1001),
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
