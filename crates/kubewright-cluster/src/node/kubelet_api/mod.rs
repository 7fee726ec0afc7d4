//! What the kubelet's own server answers, through `nodes/NAME/proxy`
//! (<https://kubernetes.io/docs/reference/instrumentation/node-metrics/>).
//!
//! * [`stats`]: `/stats/summary` and `/metrics/resource`

mod stats;

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Method, Response, StatusCode, header};
use kubewright_apimachinery::status::Status;
use kubewright_apiserver::{Action, ActionRequest, Body};
use serde_json::{Value, json};

use self::stats::Stats;
use super::{NODE_NAME, usage::UsageTotals};
use crate::controllers::{objects::Objects, value::list};

/// The handler of requests to the node.
#[derive(Debug)]
pub(crate) struct KubeletApi {
    usage: Arc<dyn UsageTotals>,
    /// The pods of the node.
    pods: Objects,
}

impl KubeletApi {
    /// Creates a handler for a node with these pods.
    pub(crate) fn new(usage: Arc<dyn UsageTotals>, pods: Objects) -> Self {
        Self { usage, pods }
    }

    fn answer(&self, request: &ActionRequest) -> Result<Response<Body>, Status> {
        if request.name != NODE_NAME {
            let why = format!("error trying to reach service: nothing runs as the node {:?}", request.name);
            return Err(Status::new(503, "ServiceUnavailable", why));
        }
        let path = request.subresource.strip_prefix("proxy").unwrap_or_default().trim_end_matches('/');
        if request.parts.method != Method::GET {
            return Ok(plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed".into()));
        }
        Ok(match path {
            "/healthz" => plain(StatusCode::OK, "ok".into()),
            "/metrics/resource" => metrics(self.stats(&request.object).metrics()?),
            "/stats/summary" => document(&self.stats(&request.object).summary()),
            "/pods" => document(&list_of(self.pods.all().iter().map(|pod| (**pod).clone()).collect())),
            "/runningpods" => document(&list_of(self.pods.all().iter().filter_map(|pod| running(pod)).collect())),
            _ => plain(StatusCode::NOT_FOUND, "404 page not found\n".into()),
        })
    }

    fn stats<'a>(&self, node: &'a Value) -> Stats<'a> {
        let pods = self.pods.all().into_iter().map(|pod| {
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
    let statuses = ["/status/initContainerStatuses", "/status/containerStatuses", "/status/ephemeralContainerStatuses"];
    let statuses = statuses.into_iter().flat_map(|statuses| list(pod, statuses));
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

fn plain(code: StatusCode, text: String) -> Response<Body> {
    respond(code, "text/plain; charset=utf-8", text)
}

fn metrics(text: String) -> Response<Body> {
    respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}

fn document(value: &Value) -> Response<Body> {
    respond(StatusCode::OK, "application/json", value.to_string())
}

fn respond(code: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
