//! Requests for `pods/exec`, `pods/attach` and `pods/portforward`, which `kubectl` sends
//! (<https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/>).

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Response};
use kubewright_apimachinery::status::Status;
use kubewright_apiserver::{
    Action, ActionRequest, Body,
    streaming::{CommandError, StreamOptions, serve_command, serve_ports},
};

use super::{RunningContainer, RunningContainers, attach::attach, command::execute, ports::forward};
use crate::node::log::requested_container;

/// A kind of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// To a command that is executed in a container.
    Exec,
    /// To the streams of a container.
    Attach,
    /// To ports of a pod.
    PortForward,
}

/// The handler of requests to connect.
#[derive(Debug)]
pub(crate) struct ConnectionAction {
    containers: RunningContainers,
    connection: Connection,
}

impl ConnectionAction {
    /// Creates a handler for these containers.
    pub(crate) fn new(containers: RunningContainers, connection: Connection) -> Self {
        Self { containers, connection }
    }

    fn answer(&self, request: &ActionRequest) -> Result<Response<Body>, Status> {
        if !matches!(request.parts.method, Method::GET | Method::POST) {
            return Err(Status::method_not_allowed());
        }
        if request.object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
            return Err(Status::bad_request(format!("pod {} does not have a host assigned", request.name)));
        }
        match self.connection {
            Connection::Exec => self.exec(request),
            Connection::Attach => self.attach(request),
            Connection::PortForward => self.port_forward(request),
        }
    }

    fn exec(&self, request: &ActionRequest) -> Result<Response<Body>, Status> {
        let container = find(&self.containers, request)?;
        let options = StreamOptions::of(request)?;
        let command = request.query.iter().filter(|(name, _)| name == "command").map(|(_, word)| word.clone());
        let argv: Vec<_> = command.collect();
        if argv.is_empty() {
            return Err(Status::bad_request("you must specify at least one command for the container"));
        }
        serve_command(request, options, move |streams| {
            // It continues when the client disconnects, as in Kubernetes.
            let command = container.tasks.clone().spawn(execute(container, argv, options.tty, streams));
            command.map(|ended| ended.unwrap_or_else(|error| Err(CommandError::Failed(error.to_string()))))
        })
    }

    fn attach(&self, request: &ActionRequest) -> Result<Response<Body>, Status> {
        let container = find(&self.containers, request)?;
        let options = StreamOptions::of(request)?;
        let output = container.output.subscribe();
        serve_command(request, options, move |streams| attach(container, output, streams))
    }

    fn port_forward(&self, request: &ActionRequest) -> Result<Response<Body>, Status> {
        let (uid, name) = (uid(request).to_owned(), request.name.clone());
        let container = self.containers.any(&request.namespace, &name, &uid);
        let missing = || Status::internal("unable to upgrade connection: pod does not exist");
        let container = container.ok_or_else(missing)?;
        serve_ports(request, move |streams| {
            let place = format!("pod {name}, uid {uid}");
            forward(container.clone(), place, streams)
        })
    }
}

impl Action for ConnectionAction {
    fn call(&self, request: ActionRequest) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        std::future::ready(self.answer(&request)).boxed()
    }
}

fn uid(request: &ActionRequest) -> &str {
    request.object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Returns the running container that a request asks for.
fn find(containers: &RunningContainers, request: &ActionRequest) -> Result<Arc<RunningContainer>, Status> {
    let container = requested_container(request)?;
    let missing = format!("unable to upgrade connection: container not found ({container:?})");
    let name = [request.namespace.clone(), request.name.clone(), container];
    containers.find(&name, uid(request)).ok_or_else(|| Status::internal(missing))
}
