//! What the kubelet's own server answers, through `nodes/NAME/proxy`
//! (<https://kubernetes.io/docs/reference/instrumentation/node-metrics/>).
//!
//! * [`stats`]: `/stats/summary` and `/metrics/resource`
//! * [`cadvisor`]: the text of `/metrics/cadvisor`
//! * [`own_metrics`]: the text of `/metrics`
//! * [`probes`]: the text of `/metrics/probes`
//! * [`logs`]: the files of `/logs/`

mod cadvisor;
mod logs;
mod metrics;
mod own_metrics;
mod probes;
mod stats;

use std::{path::Path, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Method, Response, StatusCode, header};
use jiff::Timestamp;
use kubewright_apimachinery::status::Status;
use kubewright_apiserver::{Action, ActionRequest, Body};
use serde_json::{Value, json};

use self::{logs::Found, stats::Stats};
use super::{
    pods::{NodePods, STATUSES},
    probe_counts::ProbeCounts,
    usage::UsageTotals,
};
use crate::controllers::value::list;

/// The handler of requests to the node.
#[derive(Debug)]
pub(crate) struct KubeletApi {
    usage: Arc<dyn UsageTotals>,
    /// The pods of the node.
    pods: NodePods,
    /// Their probes.
    probes: ProbeCounts,
    /// When the node was started.
    started: Timestamp,
}

impl KubeletApi {
    /// Creates a handler for a node with these pods and probes, which is started at a time.
    pub(crate) fn new(
        usage: Arc<dyn UsageTotals>,
        (pods, probes): (NodePods, ProbeCounts),
        started: Timestamp,
    ) -> Self {
        Self { usage, pods, probes, started }
    }

    fn answer(&self, request: &ActionRequest) -> Result<Response<Body>, Status> {
        let path = request.subresource.strip_prefix("proxy").unwrap_or_default().trim_end_matches('/');
        if request.parts.method != Method::GET {
            return Ok(plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed".into()));
        }
        if let Some(path) = path.strip_prefix("/logs") {
            return Ok(log_file(path));
        }
        Ok(match path {
            "/healthz" => plain(StatusCode::OK, "ok".into()),
            "/metrics" => {
                metrics_text(own_metrics::text_of(&request.name, &self.pods.objects().all(), &self.pods.counts())?)
            }
            "/metrics/resource" => metrics_text(self.stats(&request.object).metrics()?),
            "/metrics/cadvisor" => metrics_text(self.stats(&request.object).cadvisor()?),
            "/metrics/probes" => metrics_text(probes::text_of(&self.probes.all(), self.started)?),
            "/stats/summary" => document(&self.stats(&request.object).summary()),
            "/pods" => document(&list_of(self.pods.objects().all().iter().map(|pod| (**pod).clone()).collect())),
            "/runningpods" => {
                document(&list_of(self.pods.objects().all().iter().filter_map(|pod| running(pod)).collect()))
            }
            _ => not_found(),
        })
    }

    fn stats<'a>(&self, node: &'a Value) -> Stats<'a> {
        let pods = self.pods.objects().all().into_iter().map(|pod| {
            let containers = self.usage.containers(&pod);
            (pod, containers)
        });
        Stats::new(node, self.usage.node_usage(), pods.filter(|(_, containers)| !containers.is_empty()).collect())
    }
}

fn list_of(pods: Vec<Value>) -> Value {
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})
}

/// Returns a pod with its running containers as the kubelet lists it; `None` if none is running.
fn running(pod: &Value) -> Option<Value> {
    let statuses = STATUSES.into_iter().flat_map(|(statuses, _)| list(pod, statuses));
    let running = statuses.filter(|status| status["state"]["running"].is_object());
    let containers: Vec<_> =
        running.map(|one| json!({"name": one["name"], "image": one["image"], "resources": {}})).collect();
    let metadata = &pod["metadata"];
    let metadata = json!({"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]});
    let is_running = !containers.is_empty();
    is_running.then(|| json!({"metadata": metadata, "spec": {"containers": containers}, "status": {}}))
}

impl Action for KubeletApi {
    fn call(&self, request: ActionRequest) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        std::future::ready(self.answer(&request)).boxed()
    }
}

/// Returns a log file of the machine, or what is in a directory of them.
fn log_file(path: &str) -> Response<Body> {
    if !path.is_empty() && !path.starts_with('/') {
        return not_found();
    }
    match logs::read(Path::new(logs::DIRECTORY), path) {
        Ok(Found::File(content)) => respond(StatusCode::OK, "text/plain; charset=utf-8", content),
        Ok(Found::Directory(page)) => respond(StatusCode::OK, "text/html; charset=utf-8", page),
        Err(error) => {
            tracing::debug!(%error, path, "failed to read a log file");
            not_found()
        }
    }
}

fn not_found() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "404 page not found\n".into())
}

fn plain(code: StatusCode, text: String) -> Response<Body> {
    respond(code, "text/plain; charset=utf-8", text)
}

fn metrics_text(text: String) -> Response<Body> {
    respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}

fn document(value: &Value) -> Response<Body> {
    respond(StatusCode::OK, "application/json", value.to_string())
}

fn respond(code: StatusCode, content_type: &'static str, text: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(text.into());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
