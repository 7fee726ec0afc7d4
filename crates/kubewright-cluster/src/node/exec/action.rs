//! Requests for `pods/exec`, which `kubectl exec` sends
//! (<https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/>).

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Response};
use kubewright_apimachinery::status::Status;
use kubewright_apiserver::{
    Action, ActionRequest, Body,
    streaming::{StreamOptions, serve_command},
};

use super::{RunningContainer, RunningContainers, command::execute};
use crate::node::log::requested_container;

/// The handler of requests to execute commands in containers.
#[derive(Debug)]
pub(crate) struct ExecAction {
    containers: RunningContainers,
}

impl ExecAction {
    /// Creates a handler for these containers.
    pub(crate) fn new(containers: RunningContainers) -> Self {
        Self { containers }
    }

    fn answer(&self, request: &ActionRequest) -> Result<Response<Body>, Status> {
        let container = find(&self.containers, request)?;
        let options = StreamOptions::of(request)?;
        let command = request.query.iter().filter(|(name, _)| name == "command").map(|(_, word)| word.clone());
        let argv: Vec<_> = command.collect();
        if argv.is_empty() {
            return Err(Status::bad_request("you must specify at least one command for the container"));
        }
        serve_command(request, options, move |streams| execute(container, argv, options.tty, streams))
    }
}

impl Action for ExecAction {
    fn call(&self, request: ActionRequest) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        std::future::ready(self.answer(&request)).boxed()
    }
}

/// Returns the running container that a request to connect asks for.
fn find(containers: &RunningContainers, request: &ActionRequest) -> Result<Arc<RunningContainer>, Status> {
    if !matches!(request.parts.method, Method::GET | Method::POST) {
        return Err(Status::method_not_allowed());
    }
    let pod = &request.object;
    if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", request.name)));
    }
    let container = requested_container(request)?;
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let missing = format!("unable to upgrade connection: container not found ({container:?})");
    let name = [request.namespace.clone(), request.name.clone(), container];
    containers.find(&name, uid).ok_or_else(|| Status::internal(missing))
}
