//! Execution of a container's probes and lifecycle hooks.

use std::{error::Error, io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kubewright_apiserver::unverified_client_config;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::{TcpStream, lookup_host},
    process::{ChildStderr, ChildStdout},
    time::{sleep, timeout},
};
use tokio_rustls::TlsConnector;

use super::{grpc, probe::ProbeResult};
use crate::node::process::{CommandLine, Processes, exit_code};

/// The maximum length of a command's output in messages, as in the kubelet.
const OUTPUT: u64 = 10 << 10;
/// The timeout of a hook. Kubernetes has no such limit, but here every pod must be able to end.
const HOOK: Duration = Duration::from_secs(120);

/// Runs the probes and hooks of a container.
#[derive(Clone, Debug)]
pub(crate) struct Prober {
    /// Starts commands.
    pub(crate) processes: Processes,
    /// The container.
    pub(crate) container: Container,
    /// The container's own command. Other commands share its environment and working directory.
    pub(crate) line: CommandLine,
    /// The pod's address.
    pub(crate) address: String,
}

impl Prober {
    /// Runs a probe.
    pub(crate) async fn probe(&self, probe: &Probe) -> ProbeResult {
        let limit =
            Duration::from_secs(probe.timeout_seconds.and_then(|limit| limit.try_into().ok()).unwrap_or(1).max(1));
        if let Some(exec) = &probe.exec {
            return self.exec(exec.command.as_deref().unwrap_or_default(), limit).await;
        }
        if let Some(get) = &probe.http_get {
            return self.http_get(get, "kube-probe/", limit).await;
        }
        if let Some(socket) = &probe.tcp_socket {
            return self.tcp_socket(socket.host.as_deref(), &socket.port, limit).await;
        }
        match &probe.grpc {
            Some(action) => {
                let place = format!("{}:{}", self.address, action.port);
                grpc::check(&place, action.service.as_deref().unwrap_or_default(), limit).await
            }
            None => ProbeResult::Unknown("the probe has no handler".into()),
        }
    }

    /// Executes a hook. The error is meant for the pod's events.
    pub(crate) async fn hook(&self, hook: &LifecycleHandler) -> Result<(), String> {
        let outcome = if let Some(exec) = &hook.exec {
            self.exec(exec.command.as_deref().unwrap_or_default(), HOOK).await
        } else if let Some(get) = &hook.http_get {
            self.http_get(get, "kube-lifecycle/", HOOK).await
        } else if let Some(pause) = &hook.sleep {
            sleep(HOOK.min(Duration::from_secs(pause.seconds.try_into().unwrap_or_default()))).await;
            ProbeResult::Success
        } else {
            ProbeResult::Unknown("unsupported kind of hook".into())
        };
        match outcome {
            ProbeResult::Success => Ok(()),
            ProbeResult::Failure(why) | ProbeResult::Unknown(why) => Err(why),
        }
    }

    /// Runs a command in the container's environment.
    async fn exec(&self, command: &[String], limit: Duration) -> ProbeResult {
        let line = CommandLine { argv: command.to_vec(), ..self.line.clone() };
        let (process, stdout, stderr) = match self.processes.spawn(&line) {
            Ok(spawned) => spawned,
            Err(error) => return ProbeResult::Unknown(format!("failed to exec in container: {error}")),
        };
        let run = async {
            let (mut text, mut rest) = (Vec::new(), Vec::new());
            let (stdout, stderr) = (ChildStdout::from_std(stdout)?, ChildStderr::from_std(stderr)?);
            let read = async { tokio::join!(read_some(stdout, &mut text), read_some(stderr, &mut rest)) };
            // The output ends with the process, since the rest of its process group is killed then.
            let (_, status) = tokio::join!(read, process.ended());
            text.append(&mut rest);
            Ok::<_, io::Error>((exit_code(status?), String::from_utf8_lossy(&text).into_owned()))
        };
        match timeout(limit, run).await {
            Ok(Ok((0, _))) => ProbeResult::Success,
            Ok(Ok((_, text))) => ProbeResult::Failure(text),
            Ok(Err(error)) => ProbeResult::Unknown(format!("failed to exec in container: {error}")),
            Err(_) => {
                let command = command.join(" ");
                ProbeResult::Failure(format!("command timed out: {command:?} timed out after {}s", limit.as_secs()))
            }
        }
    }

    async fn tcp_socket(&self, host: Option<&str>, port: &IntOrString, limit: Duration) -> ProbeResult {
        let Some(port) = self.port(port) else { return unknown_port(port) };
        let place = format!("{}:{port}", self.host(host));
        match timeout(limit, connect(&place)).await {
            Ok(Ok(_)) => ProbeResult::Success,
            Ok(Err(why)) => ProbeResult::Failure(why),
            Err(_) => ProbeResult::Failure(format!("dial tcp {place}: i/o timeout")),
        }
    }

    /// Executes an HTTP probe. Status codes from 200 to 399 count as success, and redirects are not followed.
    /// Certificates are not verified.
    async fn http_get(&self, get: &HTTPGetAction, agent: &str, limit: Duration) -> ProbeResult {
        let Some(port) = self.port(&get.port) else { return unknown_port(&get.port) };
        let tls = get.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
        let place = format!("{}:{port}", self.host(get.host.as_deref()));
        let path = get.path.as_deref().unwrap_or("/");
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let url = format!("{}://{place}{path}", if tls { "https" } else { "http" });
        let failed = |why: String| ProbeResult::Failure(format!("Get {url:?}: {why}"));
        let request = match request(get, &place, &path, agent) {
            Ok(request) => request,
            Err(error) => return failed(error.to_string()),
        };
        let exchange = async {
            let stream = connect(&place).await?;
            if !tls {
                return send(stream, request).await;
            }
            let name = ServerName::from(stream.peer_addr().map_err(message)?.ip());
            let config = unverified_client_config().map_err(|error| error.to_string())?;
            send(TlsConnector::from(config).connect(name, stream).await.map_err(message)?, request).await
        };
        match timeout(limit, exchange).await {
            Ok(Ok(code)) if (200..400).contains(&code) => ProbeResult::Success,
            Ok(Ok(code)) => ProbeResult::Failure(format!("HTTP probe failed with statuscode: {code}")),
            Ok(Err(why)) => failed(why),
            Err(_) => failed("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into()),
        }
    }

    fn host<'a>(&'a self, asked: Option<&'a str>) -> &'a str {
        asked.filter(|host| !host.is_empty()).unwrap_or(&self.address)
    }

    /// Returns a port by its number, or by its name among the container's.
    fn port(&self, port: &IntOrString) -> Option<u16> {
        let number = match port {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => {
                let mut ports = self.container.ports.iter().flatten();
                let named = ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port);
                named.or_else(|| name.parse().ok())?
            }
        };
        u16::try_from(number).ok().filter(|number| *number != 0)
    }
}

fn unknown_port(port: &IntOrString) -> ProbeResult {
    match port {
        IntOrString::Int(number) => ProbeResult::Unknown(format!("invalid port number: {number}")),
        IntOrString::String(name) => ProbeResult::Unknown(format!("couldn't find port: {name:?}")),
    }
}

/// Reads to the end, and keeps only the beginning.
async fn read_some(stream: impl AsyncRead + Unpin, text: &mut Vec<u8>) {
    let mut head = stream.take(OUTPUT);
    // Output that can't be read is omitted.
    let _read = head.read_to_end(text).await;
    let _rest = tokio::io::copy(&mut head.into_inner(), &mut tokio::io::sink()).await;
}

/// Connects to the first address of a host. The error messages are Go's, as users know them from the kubelet.
async fn connect(place: &str) -> Result<TcpStream, String> {
    let mut addresses = lookup_host(place).await.map_err(|error| format!("dial tcp: lookup {place}: {error}"))?;
    let address: SocketAddr = addresses.next().ok_or_else(|| format!("dial tcp: lookup {place}: no such host"))?;
    TcpStream::connect(address).await.map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            _ => error.to_string(),
        };
        format!("dial tcp {address}: connect: {why}")
    })
}

fn request(get: &HTTPGetAction, place: &str, path: &str, agent: &str) -> Result<Request<Empty<Bytes>>, http::Error> {
    let mut request = Request::get(path.parse::<Uri>()?);
    let headers = get.http_headers.iter().flatten();
    let given = |name: &str| headers.clone().any(|one| one.name.eq_ignore_ascii_case(name));
    let defaults = [("host", place), ("user-agent", agent), ("accept", "*/*"), ("connection", "close")];
    for (name, value) in defaults.into_iter().filter(|(name, _)| !given(name)) {
        request = request.header(name, value);
    }
    // An empty value removes a default header.
    for header in headers.filter(|header| !header.value.is_empty()) {
        request = request.header(header.name.as_str(), header.value.as_str());
    }
    request.body(Empty::new())
}

/// Sends a request on a new connection, and returns the status code.
async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<u16, String> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(message)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(message)?;
        let code = answer.status().as_u16();
        // The body is ignored, but a server might log an error if the connection ended in the middle of it.
        let _body = http_body_util::Limited::new(answer.into_body(), 10 << 10).collect().await;
        Ok(code)
    };
    tokio::pin!(exchange, connection);
    tokio::select! {
        biased;
        code = &mut exchange => code,
        ended = &mut connection => match ended {
            Ok(()) => exchange.await,
            Err(error) => Err(message(error)),
        },
    }
}

/// Returns the message of the innermost error.
fn message(error: impl Error) -> String {
    let mut innermost: &dyn Error = &error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
