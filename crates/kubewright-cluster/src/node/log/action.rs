//! `GET pods/<name>/log`, the request that `kubectl logs` sends
//! (<https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#get-read-log-of-the-specified-pod>).

use std::time::Duration;

use futures::{FutureExt, TryStreamExt, future::BoxFuture};
use http::{Method, Response, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use kubewright_apimachinery::{
    clock::SharedClock,
    status::{Cause, Status},
};
use kubewright_apiserver::{Action, ActionRequest, Body, BoxError};
use serde_json::json;

use super::Query;
use crate::node::log::LogStore;

/// The handler of requests for the logs of a node.
#[derive(Debug)]
pub(crate) struct LogAction {
    logs: LogStore,
    clock: SharedClock,
}

impl LogAction {
    /// Creates a handler that reads from `logs`.
    pub(crate) fn new(logs: LogStore, clock: SharedClock) -> Self {
        Self { logs, clock }
    }

    fn answer(&self, request: &ActionRequest) -> Result<Response<Body>, Status> {
        if request.parts.method != Method::GET {
            return Err(Status::new(405, "MethodNotAllowed", "logs can only be read"));
        }
        let query = query(request, self.clock.now())?;
        let container = requested_container(request)?;
        let previous = request.flag("previous");
        let pod = (request.namespace.clone(), request.name.clone());
        let body = match self.logs.find(&pod, &container, previous) {
            // As in Kubernetes, a pod without a node has nothing to say.
            None if has_no_node(request) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                return Ok(response);
            }
            Some(log) => Body::stream(log.read(query).map_err(BoxError::from)),
            None => nothing(request, &container, previous)?,
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
        Ok(response)
    }
}

impl Action for LogAction {
    fn call(&self, request: ActionRequest) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        std::future::ready(self.answer(&request)).boxed()
    }

    fn streams_bytes(&self) -> bool {
        true
    }
}

fn has_no_node(request: &ActionRequest) -> bool {
    request.object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty()
}

/// Returns the response for a container without a log.
fn nothing(request: &ActionRequest, container: &str, previous: bool) -> Result<Body, Status> {
    let pod = &request.object;
    let name = &request.name;
    if previous {
        return Err(Status::bad_request(format!(
            "previous terminated container {container:?} in pod {name:?} not found"
        )));
    }
    let statuses = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"]
        .map(|field| pod["status"][field].as_array());
    let mut statuses = statuses.into_iter().flatten().flatten();
    let status = statuses.find(|status| status["name"] == container);
    let reason = status.and_then(|status| status["state"]["waiting"]["reason"].as_str());
    match reason {
        None => Ok(Body::empty()),
        Some(reason @ ("ErrImagePull" | "ImagePullBackOff")) => Err(Status::bad_request(format!(
            "container {container:?} in pod {name:?} is waiting to start: trying and failing to pull image ({reason})"
        ))),
        Some(reason) => {
            Err(Status::bad_request(format!("container {container:?} in pod {name:?} is waiting to start: {reason}")))
        }
    }
}

/// Returns the requested container, or the only main one.
pub(crate) fn requested_container(request: &ActionRequest) -> Result<String, Status> {
    let spec = &request.object["spec"];
    let names = |field: &str| -> Vec<&str> {
        let list = spec[field].as_array().into_iter().flatten();
        list.filter_map(|one| one["name"].as_str()).collect()
    };
    let main = names("containers");
    let all = [names("initContainers"), main.clone(), names("ephemeralContainers")].concat();
    let pod = &request.name;
    match (request.parameter("container"), main.as_slice()) {
        (Some(wanted), _) if all.contains(&wanted) => Ok(wanted.into()),
        (Some(wanted), _) => Err(Status::bad_request(format!("container {wanted} is not valid for pod {pod}"))),
        (None, [only]) => Ok((*only).into()),
        (None, []) => Err(Status::bad_request(format!("a container name must be specified for pod {pod}"))),
        (None, _) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {pod}, choose one of: [{}]",
            all.join(" ")
        ))),
    }
}

fn query(request: &ActionRequest, now: Timestamp) -> Result<Query, Status> {
    let mut causes = Vec::new();
    let mut number = |name: &str, least: i64| -> Option<i64> {
        let text = request.parameter(name)?;
        match text.parse::<i64>() {
            Ok(number) if number >= least => Some(number),
            Ok(number) => {
                let why = format!("must be greater than or equal to {least}");
                causes.push(Cause::invalid(name, &json!(number), &why));
                None
            }
            Err(_) => {
                causes.push(Cause::invalid(name, &json!(text), "must be an integer"));
                None
            }
        }
    };
    let tail = number("tailLines", 0).and_then(|lines| u64::try_from(lines).ok());
    let limit = number("limitBytes", 1).and_then(|bytes| u64::try_from(bytes).ok());
    let seconds = number("sinceSeconds", 1).and_then(|seconds| u64::try_from(seconds).ok());
    let mut since = seconds.map(|seconds| {
        let span = SignedDuration::try_from(Duration::from_secs(seconds)).unwrap_or(SignedDuration::MAX);
        now.saturating_sub(span).unwrap_or(Timestamp::MIN)
    });
    if let Some(text) = request.parameter("sinceTime") {
        match text.parse() {
            Ok(_) if since.is_some() => {
                let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                causes.push(Cause::forbidden("sinceTime", why));
            }
            Ok(time) => since = Some(time),
            Err(_) => causes.push(Cause::invalid("sinceTime", &json!(text), "must be a time as in RFC 3339")),
        }
    }
    if !causes.is_empty() {
        return Err(Status::invalid("", "PodLogOptions", &request.name, causes));
    }
    let (follow, timestamps) = (request.flag("follow"), request.flag("timestamps"));
    Ok(Query { follow, tail, since, timestamps, limit })
}
