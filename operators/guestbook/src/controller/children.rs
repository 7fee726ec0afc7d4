//! Builds the children of a Guestbook: its pods, and the Service that selects one of them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Capabilities, ConfigMapKeySelector, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
        ObjectFieldSelector, Pod, PodSecurityContext, PodSpec, Probe, ResourceRequirements, SeccompProfile,
        SecurityContext, Service, ServicePort, ServiceSpec,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use kube::ResourceExt;
use kubewright::{name::shorten, random::Random};
use ring::digest::{SHA256, digest};
use serde_json::json;

use super::config::Texts;
use crate::api::v1::Guestbook;

/// The default image.
pub(crate) const IMAGE: &str = "kubewright/guestbook";
/// The label with the pod's own name, so that a selector can select one pod.
pub(crate) const POD: &str = "webapp.my.domain/pod";
/// The annotation of a pod with its [`revision`].
pub(crate) const REVISION: &str = "webapp.my.domain/revision";

/// The environment variable with the address of the Service, for the page.
const SERVICE: &str = "SERVICE";
/// The port at which the page listens.
const PAGE_PORT: i32 = 8080;
/// The port of the Service.
const SERVICE_PORT: i32 = 80;
/// The maximum length of a label's value in bytes.
const MAX_LABEL: usize = 63;

pub(crate) type Labels = BTreeMap<String, String>;

/// Returns the labels that select all pods of a Guestbook.
pub(crate) fn labels(guestbook: &Guestbook) -> Labels {
    labelled([
        ("app.kubernetes.io/name", "guestbook".into()),
        ("app.kubernetes.io/instance", shorten(&guestbook.name_any(), MAX_LABEL)),
    ])
}

/// Returns all labels of a pod.
pub(crate) fn pod_labels(guestbook: &Guestbook, pod: &str) -> Labels {
    let mut labels = labels(guestbook);
    labels.extend(labelled([("app.kubernetes.io/managed-by", "guestbook-operator".into()), (POD, pod.into())]));
    labels
}

fn labelled<const N: usize>(labels: [(&str, String); N]) -> Labels {
    labels.map(|(key, value)| (key.to_owned(), value)).into()
}

/// Returns a hash of everything that pods are created from. It is stable across releases.
pub(crate) fn revision(guestbook: &Guestbook, texts: &Texts) -> String {
    let made_from = json!([FORM, image(guestbook), guestbook.spec.alias, guestbook.spec.config_map_name, texts]);
    let digest = digest(&SHA256, made_from.to_string().as_bytes());
    digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The version of the output of [`pod`]. Changing it replaces the pods of earlier releases.
const FORM: u32 = 1;

fn image(guestbook: &Guestbook) -> &str {
    guestbook.spec.image.as_deref().unwrap_or(IMAGE)
}

/// Returns a pod with a unique name and without an owner reference. `service` is the address of the Guestbook's
/// Service, from which the page gets the existing entries.
///
/// The name is generated here instead of by the API server, so that a request that is repeated after a lost response
/// finds the pod that the first one created.
pub(crate) fn pod(guestbook: &Guestbook, revision: &str, service: Option<&str>, random: &Random) -> Pod {
    let suffix = random.suffix(5);
    // The name is also the value of a label.
    let name = format!("{}-{suffix}", shorten(&guestbook.name_any(), MAX_LABEL - 1 - suffix.len()));
    Pod {
        metadata: ObjectMeta {
            namespace: guestbook.namespace(),
            labels: Some(pod_labels(guestbook, &name)),
            annotations: Some(labelled([(REVISION, revision.into())])),
            name: Some(name),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container(guestbook, service)],
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(5),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(65532),
                seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), ..SeccompProfile::default() }),
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// Returns whether a pod was created from this revision, even if it was edited since.
pub(crate) fn is_made_from(guestbook: &Guestbook, pod: &Pod, revision: &str, service: Option<&str>) -> bool {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let known =
        container.and_then(|container| container.env.as_ref()?.iter().find(|variable| variable.name == SERVICE));
    pod.annotations().get(REVISION).is_some_and(|made_from| made_from == revision)
        && container.and_then(|container| container.image.as_deref()) == Some(image(guestbook))
        // While there is no Service, any address is accepted.
        && (service.is_none() || known.and_then(|variable| variable.value.as_deref()) == service)
}

fn container(guestbook: &Guestbook, service: Option<&str>) -> Container {
    let plain = |name: &str, value: &str| EnvVar { name: name.into(), value: Some(value.into()), value_from: None };
    let from = |name: &str, source: EnvVarSource| EnvVar { name: name.into(), value: None, value_from: Some(source) };
    let text = |name: &str, key: &str| {
        // Optional, so that a running page survives the deletion of the ConfigMap.
        let key = ConfigMapKeySelector {
            name: guestbook.spec.config_map_name.clone(),
            key: key.into(),
            optional: Some(true),
        };
        from(name, EnvVarSource { config_map_key_ref: Some(key), ..EnvVarSource::default() })
    };
    let field = ObjectFieldSelector { field_path: "metadata.name".into(), ..ObjectFieldSelector::default() };
    let mut env = vec![
        plain("ALIAS", guestbook.spec.alias.as_str()),
        text("TITLE", "title"),
        text("GREETING", "greeting"),
        from("POD_NAME", EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
    ];
    env.extend(service.map(|address| plain(SERVICE, address)));
    Container {
        name: "guestbook".into(),
        image: Some(image(guestbook).into()),
        env: Some(env),
        ports: Some(vec![ContainerPort {
            name: Some("http".into()),
            container_port: PAGE_PORT,
            ..ContainerPort::default()
        }]),
        readiness_probe: Some(probe("/readyz", 1, 2)),
        liveness_probe: Some(probe("/healthz", 10, 3)),
        resources: Some(ResourceRequirements {
            requests: Some(quantities([("cpu", "10m"), ("memory", "16Mi")])),
            limits: Some(quantities([("memory", "64Mi")])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn probe(path: &str, period_seconds: i32, failure_threshold: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.into()),
            port: IntOrString::String("http".into()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        failure_threshold: Some(failure_threshold),
        ..Probe::default()
    }
}

fn quantities<const N: usize>(list: [(&str, &str); N]) -> BTreeMap<String, Quantity> {
    list.map(|(name, amount)| (name.to_owned(), Quantity(amount.into()))).into()
}

/// Returns the Service that selects the pod of this name, or no pod.
///
/// It has only the necessary fields: the type, addresses, node ports and further labels are left to others.
pub(crate) fn service(guestbook: &Guestbook, pod: Option<&str>) -> Service {
    let mut selector = labels(guestbook);
    selector.insert(POD.into(), pod.unwrap_or_default().into());
    Service {
        metadata: ObjectMeta {
            name: guestbook.metadata.name.clone(),
            namespace: guestbook.namespace(),
            labels: Some(labels(guestbook)),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            selector: Some(selector),
            ports: Some(vec![ServicePort {
                name: Some("http".into()),
                port: SERVICE_PORT,
                protocol: Some("TCP".into()),
                target_port: Some(IntOrString::String("http".into())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Returns whether a Service has the necessary fields.
pub(crate) fn says(service: &Service, wanted: &Service) -> bool {
    let has_labels = wanted.labels().iter().all(|(key, value)| service.labels().get(key) == Some(value));
    let (Some(spec), Some(wanted)) = (&service.spec, &wanted.spec) else { return false };
    let essence = |port: &ServicePort| (port.port, port.protocol.clone(), port.name.clone(), port.target_port.clone());
    let has_ports = wanted
        .ports
        .iter()
        .flatten()
        .all(|port| spec.ports.iter().flatten().any(|other| essence(other) == essence(port)));
    has_labels && has_ports && spec.selector == wanted.selector
}

/// Returns the name of the pod that the Service selects.
pub(crate) fn selected(service: &Service) -> Option<&str> {
    let selector = service.spec.as_ref()?.selector.as_ref()?;
    selector.get(POD).map(String::as_str).filter(|name| !name.is_empty())
}

/// Returns the Service's address within the cluster.
pub(crate) fn address(service: &Service) -> Option<String> {
    let ip = service.spec.as_ref()?.cluster_ip.as_deref()?;
    let ip = ip.parse::<std::net::IpAddr>().ok()?;
    u16::try_from(SERVICE_PORT).ok().map(|port| std::net::SocketAddr::new(ip, port).to_string())
}
