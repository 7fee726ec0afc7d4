//! Builds the two children of a Lolcow, with only the fields that are applied.
//!
//! Other fields are left to others: the number of replicas to an autoscaler, addresses to the API server.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            Capabilities, Container, ContainerPort, HTTPGetAction, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
            ResourceRequirements, SeccompProfile, SecurityContext, Service, ServicePort, ServiceSpec,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::ResourceExt;
use kubewright::name::shorten;

use crate::api::v1alpha1::Lolcow;

/// The image of the page. Its first argument is the greeting.
pub(crate) const IMAGE: &str = "ghcr.io/vsoch/lolcow-operator";
/// The port of the page in its container, and of the Service.
pub(crate) const PORT: i32 = 8080;
/// The name of the container, and of its port.
const CONTAINER: &str = "lolcow";
const PORT_NAME: &str = "http";
/// The user `nonroot` of distroless images.
const USER: i64 = 65532;

type Labels = BTreeMap<String, String>;

/// Returns the labels that select the pods of a Lolcow.
fn selector(cow: &Lolcow) -> Labels {
    let instance = shorten(&cow.name_any(), 63);
    [("app.kubernetes.io/name", "lolcow".into()), ("app.kubernetes.io/instance", instance)]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
}

fn metadata(cow: &Lolcow) -> ObjectMeta {
    let mut labels = selector(cow);
    labels.insert("app.kubernetes.io/managed-by".into(), "lolcow-operator".into());
    ObjectMeta {
        name: cow.metadata.name.clone(),
        namespace: cow.metadata.namespace.clone(),
        labels: Some(labels),
        ..ObjectMeta::default()
    }
}

/// Returns the Deployment of the page.
pub(crate) fn deployment(cow: &Lolcow) -> Deployment {
    let labels = selector(cow);
    Deployment {
        metadata: metadata(cow),
        spec: Some(DeploymentSpec {
            selector: LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(pod(cow)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// Returns a pod that complies with the Pod Security Standard `restricted`.
fn pod(cow: &Lolcow) -> PodSpec {
    PodSpec {
        containers: vec![container(cow)],
        automount_service_account_token: Some(false),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), ..SeccompProfile::default() }),
            ..PodSecurityContext::default()
        }),
        ..PodSpec::default()
    }
}

fn container(cow: &Lolcow) -> Container {
    let requests = [("cpu", "10m"), ("memory", "32Mi")].map(|(name, amount)| (name.into(), Quantity(amount.into())));
    Container {
        name: CONTAINER.into(),
        image: Some(IMAGE.into()),
        // Set even if empty, so that a previous greeting is removed.
        args: Some(greeting(cow).map(escaped).into_iter().collect()),
        ports: Some(vec![ContainerPort {
            name: Some(PORT_NAME.into()),
            container_port: PORT,
            ..ContainerPort::default()
        }]),
        // Requests the page itself, since the original image answers no other path.
        readiness_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/".into()),
                port: IntOrString::Int(PORT),
                ..HTTPGetAction::default()
            }),
            period_seconds: Some(2),
            ..Probe::default()
        }),
        resources: Some(ResourceRequirements { requests: Some(requests.into()), ..ResourceRequirements::default() }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), ..Capabilities::default() }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

/// Returns the Service of the page. If the spec has no port, the API server chooses one and keeps it.
pub(crate) fn service(cow: &Lolcow) -> Service {
    Service {
        metadata: metadata(cow),
        spec: Some(ServiceSpec {
            type_: Some("NodePort".into()),
            selector: Some(selector(cow)),
            ports: Some(vec![ServicePort {
                name: Some(PORT_NAME.into()),
                // Set because the protocol is part of the key of the list of ports.
                protocol: Some("TCP".into()),
                port: PORT,
                target_port: Some(IntOrString::Int(PORT)),
                node_port: port(cow),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Returns the greeting, if there is one.
pub(crate) fn greeting(cow: &Lolcow) -> Option<&str> {
    cow.spec.greeting.as_deref().filter(|greeting| !greeting.is_empty())
}

/// Returns the wanted port.
pub(crate) fn port(cow: &Lolcow) -> Option<i32> {
    cow.spec.port.filter(|port| *port != 0)
}

/// Returns the greeting in a Deployment.
pub(crate) fn greeting_of(deployment: &Deployment) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let container = pod.containers.iter().find(|container| container.name == CONTAINER)?;
    container.args.as_ref()?.first().map(|argument| argument.replace("$$", "$"))
}

/// Returns the node port of a Service.
pub(crate) fn port_of(service: &Service) -> Option<i32> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    ports.iter().find(|port| port.port == PORT)?.node_port.filter(|port| *port != 0)
}

/// Escapes a greeting for use as an argument, in which `$(NAME)` would be expanded and `$$` stands for `$`.
fn escaped(greeting: &str) -> String {
    greeting.replace('$', "$$")
}
