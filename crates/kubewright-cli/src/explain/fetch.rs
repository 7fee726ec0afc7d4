//! Requests to operators for their traces: directly to pods on this machine, and through a port forwarded by kubectl to
//! others.

use std::{ffi::OsString, net::IpAddr, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::{client::legacy, rt::TokioExecutor};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::util::intstr::IntOrString};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, ListParams},
};
use kubewright_apimachinery::{
    text::clean,
    trace::{KeyPage, Overview, Phase, Present, Summary, VERSION},
};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
};

/// The label of operator pods in the scaffolds of kubebuilder and Kubewright.
pub(super) const OPERATORS: &str = "control-plane=controller-manager";

/// The timeout of a request to an operator, and of starting kubectl.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a response in bytes.
const LONGEST_RESPONSE: usize = 16 << 20;

/// An operator that serves its traces.
#[derive(Clone, Debug)]
pub(super) enum TraceEndpoint {
    /// At this URL.
    Address(String),
    /// In this pod, on its loopback.
    Pod { namespace: String, name: String, port: u16 },
}

/// Lists the pods of operators that serve their traces.
pub(super) async fn operators(client: &Client) -> Result<Vec<TraceEndpoint>, kube::Error> {
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default().labels(OPERATORS)).await?;
    Ok(pods.into_iter().filter_map(|pod| endpoint(&pod)).collect())
}

/// Returns the location of the traces of a running pod, based on the port of its probes.
fn endpoint(pod: &Pod) -> Option<TraceEndpoint> {
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
        // Pods of the embedded cluster are processes of this machine.
        Some(address) => TraceEndpoint::Address(format!("http://{}", std::net::SocketAddr::new(address, port))),
        None => TraceEndpoint::Pod { namespace: pod.namespace()?, name: pod.name_any(), port },
    })
}

/// Fetches the pages for an object from the operator's controllers of its kind.
pub(super) async fn pages(
    kubectl: &Kubectl,
    endpoint: &TraceEndpoint,
    kind: &ApiResource,
    object: &str,
) -> Result<Vec<KeyPage>> {
    let connection = endpoint.connect(kubectl).await?;
    let overview: Overview = get(&connection, "").await?;
    if overview.version != VERSION {
        bail!(
            "its traces have version {}, and this kubewright reads version {VERSION}: use the kubewright that the operator was built with",
            overview.version
        );
    }
    let mut pages = Vec::new();
    let is_of_kind = |controller: &&Summary| controller.kind == kind.kind && controller.group == kind.group;
    for controller in overview.controllers.iter().filter(is_of_kind) {
        let page: KeyPage = get(&connection, &format!("/{}/{object}", controller.name)).await?;
        if page.version == VERSION {
            pages.push(page);
        }
    }
    Ok(pages)
}

/// Selects, from several replicas and controllers, the pages of those that work on the object, or else of those that
/// know it.
pub(super) fn best(pages: Vec<KeyPage>) -> Vec<KeyPage> {
    let rank = |page: &KeyPage| {
        let works = page.controller.phase == Phase::Working && page.present != Present::Elsewhere;
        (works, page.exists || !page.runs.is_empty())
    };
    let Some(highest) = pages.iter().map(rank).max() else { return pages };
    pages.into_iter().filter(|page| rank(page) == highest).collect()
}

async fn get<T: DeserializeOwned>(connection: &Connection, path: &str) -> Result<T> {
    let text = by_address(&connection.url, path).await?;
    serde_json::from_str(&text).with_context(|| format!("{} doesn't serve traces of kubewright", connection.url))
}

/// The program and the flags of kubectl.
#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    pub(crate) program: OsString,
    /// The flags that select the cluster.
    pub(crate) flags: Vec<OsString>,
}

/// A URL that reaches an operator.
struct Connection {
    url: String,
    /// The process that forwards the port. It ends when this is dropped.
    _forward: Option<Child>,
}

impl TraceEndpoint {
    async fn connect(&self, kubectl: &Kubectl) -> Result<Connection> {
        let (namespace, name, port) = match self {
            Self::Address(url) => return Ok(Connection { url: url.clone(), _forward: None }),
            Self::Pod { namespace, name, port } => (namespace, name, port),
        };
        let remedy = || {
            format!(
                "can't forward a port to it: run kubectl port-forward -n {namespace} pod/{name} {port}, and pass --traces \
                 http://localhost:{port}"
            )
        };
        let mut command = Command::new(&kubectl.program);
        command.args(&kubectl.flags).args(["port-forward", "--address", "127.0.0.1", "--namespace", namespace]);
        command.arg(format!("pod/{name}")).arg(format!(":{port}")).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(remedy)?;
        let forwarded = tokio::time::timeout(TIMEOUT, local_port(&mut child)).await;
        let port = forwarded.context("kubectl doesn't answer").and_then(|port| port).with_context(remedy)?;
        Ok(Connection { url: format!("http://127.0.0.1:{port}"), _forward: Some(child) })
    }
}

/// Reads the local port that kubectl has opened: `Forwarding from 127.0.0.1:41234 -> 8081`.
async fn local_port(kubectl: &mut Child) -> Result<u16> {
    let output = kubectl.stdout.as_mut().context("kubectl has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).await.context("read the output of kubectl")?;
    let address = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
    if let Some(port) = address.and_then(|port| port.parse().ok()) {
        return Ok(port);
    }
    let mut error = String::new();
    if let Some(stderr) = &mut kubectl.stderr {
        stderr.take(4096).read_to_string(&mut error).await.context("read the errors of kubectl")?;
    }
    bail!("kubectl port-forward: {}", clean(format!("{line} {error}").trim()))
}

/// Returns whether the operator at a URL reconciles: whether all of its controllers work or, if it keeps no traces,
/// whether it is ready.
///
/// # Errors
/// Returns an error if there is no response.
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
        bail!("{address} ({status}): {}", clean(&text));
    }
    Ok(text)
}

/// Sends a request to a URL.
async fn ask(address: &str) -> Result<(StatusCode, String)> {
    let uri: Uri = address.parse().with_context(|| format!("invalid URL {address}"))?;
    let client = legacy::Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let exchange = async {
        let answer = client.get(uri).await.with_context(|| {
            format!("can't reach {address}: does the operator serve its probes there (--health-probe-bind-address)?")
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST_RESPONSE).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("{address}: {error}"))?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    tokio::time::timeout(TIMEOUT, exchange).await.with_context(|| format!("no response from {address}"))?
}

impl std::fmt::Display for TraceEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => f.write_str(address),
            Self::Pod { namespace, name, .. } => write!(f, "pod {namespace}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

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

    /// Returns a kubectl that runs a script.
    fn kubectl(folder: &Path, script: &str) -> Kubectl {
        let program = folder.join("kubectl");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Kubectl { program: program.into(), flags: vec!["--context".into(), "far".into()] }
    }

    #[tokio::test]
    async fn pods_elsewhere_are_reached_by_a_forwarded_port() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = TraceEndpoint::Pod { namespace: "cows".into(), name: "manager".into(), port: 8081 };
        let asked = folder.path().join("asked");
        let script = format!(
            "echo \"$@\" > {}\necho 'Forwarding from 127.0.0.1:41234 -> 8081'\nexec sleep 1000",
            asked.display()
        );
        let connection = endpoint.connect(&kubectl(folder.path(), &script)).await.unwrap();
        assert_eq!(connection.url, "http://127.0.0.1:41234");
        let asked = fs::read_to_string(asked).unwrap();
        assert_eq!(asked.trim(), "--context far port-forward --address 127.0.0.1 --namespace cows pod/manager :8081");

        let refusing = kubectl(folder.path(), "echo 'error: pods \"manager\" is forbidden' >&2; exit 1");
        let error = format!("{:#}", endpoint.connect(&refusing).await.err().unwrap());
        assert!(error.contains("pass --traces http://localhost:8081") && error.contains("is forbidden"), "{error}");
        let missing = Kubectl { program: "/nonexistent/kubectl".into(), flags: Vec::new() };
        let error = format!("{:#}", endpoint.connect(&missing).await.err().unwrap());
        assert!(error.contains("run kubectl port-forward -n cows pod/manager 8081"), "{error}");
    }

    #[test]
    fn pods_on_this_machine_are_asked_at_their_address() {
        let shown = |pod: Pod| endpoint(&pod).map(|endpoint| format!("{endpoint:?}"));
        assert_eq!(shown(pod("127.1.2.3", "Running", json!("probes"))).unwrap(), r#"Address("http://127.1.2.3:8081")"#);
        let far = shown(pod("10.0.0.7", "Running", json!(9000))).unwrap();
        assert_eq!(far, r#"Pod { namespace: "cows", name: "manager", port: 9000 }"#);
        assert_eq!(shown(pod("10.0.0.7", "Pending", json!(9000))), None);
        assert_eq!(shown(pod("10.0.0.7", "Running", json!("other"))), None);
    }
}
