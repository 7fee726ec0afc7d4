//! Asking operators for the pages of their traces: pods of this machine by their address, others through the API server.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::{client::legacy, rt::TokioExecutor};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::util::intstr::IntOrString};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, ListParams},
};
use serde::de::DeserializeOwned;

use super::page::{Controller, Overview, Page, Phase, Present, VERSION};

/// The label that kubebuilder's scaffold and ours give the pods of operators.
pub(super) const OPERATORS: &str = "control-plane=controller-manager";

/// How long an operator may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A longer page is none.
const LONGEST: usize = 16 << 20;

/// Where an operator shows its traces.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// An address of its own.
    Address(String),
    /// A pod, which the API server leads to.
    Pod { namespace: String, name: String, port: u16 },
}

/// The pods of operators that show their traces.
pub(super) async fn operators(client: &Client) -> Result<Vec<Place>, kube::Error> {
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default().labels(OPERATORS)).await?;
    Ok(pods.into_iter().filter_map(|pod| place(&pod)).collect())
}

/// The port of a running pod's probes.
fn place(pod: &Pod) -> Option<Place> {
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Running"))?;
    let containers = &pod.spec.as_ref()?.containers;
    let port = containers.iter().find_map(|container| {
        let probe = container.liveness_probe.as_ref().or(container.readiness_probe.as_ref())?;
        match &probe.http_get.as_ref()?.port {
            IntOrString::Int(number) => u16::try_from(*number).ok(),
            IntOrString::String(name) => {
                let port = container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name))?;
                u16::try_from(port.container_port).ok()
            }
        }
    })?;
    let address = status.pod_ip.as_ref().and_then(|address| address.parse::<IpAddr>().ok());
    Some(match address.filter(IpAddr::is_loopback) {
        // The pods of the embedded cluster are processes of this machine.
        Some(address) => Place::Address(format!("http://{}", std::net::SocketAddr::new(address, port))),
        None => Place::Pod { namespace: pod.namespace()?, name: pod.name_any(), port },
    })
}

/// What an operator's controllers of a kind say of an object.
pub(super) async fn pages(client: &Client, place: &Place, kind: &ApiResource, object: &str) -> Result<Vec<Page>> {
    let overview: Overview = get(client, place, "").await?;
    if overview.version != VERSION {
        bail!(
            "it tells of traces in version {}, and this kubewright understands {VERSION}: use the kubewright that the operator was built with",
            overview.version
        );
    }
    let mut pages = Vec::new();
    let is_of_kind = |controller: &&Controller| {
        controller.kind == kind.kind && controller.group.as_ref().is_none_or(|group| *group == kind.group)
    };
    for controller in overview.controllers.iter().filter(is_of_kind) {
        let page: Page = get(client, place, &format!("/{}/{object}", controller.name)).await?;
        if page.version == VERSION {
            pages.push(page);
        }
    }
    Ok(pages)
}

/// Of several replicas and controllers those that have something to say: who works on it, or at least knows it.
pub(super) fn best(pages: Vec<Page>) -> Vec<Page> {
    let rank = |page: &Page| {
        let works = page.controller.phase == Phase::Working && page.present != Present::Elsewhere;
        (works, page.exists || !page.runs.is_empty())
    };
    let Some(highest) = pages.iter().map(rank).max() else { return pages };
    pages.into_iter().filter(|page| rank(page) == highest).collect()
}

async fn get<T: DeserializeOwned>(client: &Client, place: &Place, path: &str) -> Result<T> {
    let text = match place {
        Place::Address(base) => by_address(base, path).await?,
        Place::Pod { namespace, name, port } => {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/debug/traces{path}");
            let request = Request::get(&path).body(Vec::new()).context("ask for traces")?;
            let asked = tokio::time::timeout(PATIENCE, client.request_text(request)).await;
            asked.with_context(|| format!("{path}: there was no answer"))?.with_context(|| {
                format!("{path}: this needs the right to get pods/proxy; or forward the port, and say --traces http://localhost:{port}")
            })?
        }
    };
    serde_json::from_str(&text).with_context(|| format!("{place} answers what are no traces of kubewright"))
}

/// Whether the operator whose probes are answered at an address reconciles: whether all its controllers work, or if it keeps no traces,
/// whether it is ready.
///
/// # Errors
/// If it doesn't answer.
pub(crate) async fn is_reconciling(base: &str) -> Result<bool> {
    let (status, text) = ask(&format!("{base}/debug/traces")).await?;
    if status != StatusCode::OK {
        return Ok(ask(&format!("{base}/readyz")).await?.0 == StatusCode::OK);
    }
    let overview: Overview = serde_json::from_str(&text).context("read traces")?;
    Ok(overview.controllers.iter().all(|controller| controller.phase == Phase::Working))
}

async fn by_address(base: &str, path: &str) -> Result<String> {
    let base = base.trim_end_matches('/').trim_end_matches("/debug/traces");
    let address = format!("{base}/debug/traces{path}");
    let (status, text) = ask(&address).await?;
    if status != StatusCode::OK {
        bail!("{address} ({status}): {}", super::format::clean(&text));
    }
    Ok(text)
}

/// The answer at an address.
async fn ask(address: &str) -> Result<(StatusCode, String)> {
    let uri: Uri = address.parse().with_context(|| format!("{address} is no address"))?;
    let client = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let exchange = async {
        let answer = client.get(uri).await.with_context(|| {
            format!("{address} can't be asked: is the operator's port for probes there (--health-probe-bind-address)?")
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("{address}: {error}"))?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    tokio::time::timeout(PATIENCE, exchange).await.with_context(|| format!("{address}: there was no answer"))?
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => f.write_str(address),
            Self::Pod { namespace, name, .. } => write!(f, "pod {namespace}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(address: &str, phase: &str, port: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "manager", "namespace": "cows"},
            "spec": {"containers": [{
                "name": "manager", "ports": [{"name": "probes", "containerPort": 8081}],
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": port}},
            }]},
            "status": {"phase": phase, "podIP": address},
        }))
        .unwrap()
    }

    #[test]
    fn pods_of_this_machine_are_asked_at_their_address() {
        let shown = |pod: Pod| place(&pod).map(|place| format!("{place:?}"));
        assert_eq!(shown(pod("127.1.2.3", "Running", json!("probes"))).unwrap(), r#"Address("http://127.1.2.3:8081")"#);
        let far = shown(pod("10.0.0.7", "Running", json!(9000))).unwrap();
        assert_eq!(far, r#"Pod { namespace: "cows", name: "manager", port: 9000 }"#);
        assert_eq!(shown(pod("10.0.0.7", "Pending", json!(9000))), None);
        assert_eq!(shown(pod("10.0.0.7", "Running", json!("other"))), None);
    }
}
