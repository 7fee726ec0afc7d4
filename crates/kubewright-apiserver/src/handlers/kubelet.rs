//! Requests to containers on nodes that other programs run, which the kubelets of these nodes answer: logs, commands
//! and ports.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use kubewright_apimachinery::status::{Details, Status};
use serde_json::Value;

use super::call::Call;
use crate::{
    body::{Body, BoxError},
    kubelet::{Kubelet, Kubelets},
    proxy::{self, Driven, ProxyRequest},
    registry::AtKubelet,
    response::Response,
    streaming::{self, CommandError, CommandStreams, SPDY_PROTOCOL, StreamOptions},
    websocket::{self, Content, Upgrade},
};

/// The beginning of subprotocols of WebSockets that contain SPDY.
const TUNNEL: &str = "SPDY/3.1+";
/// The end of the subprotocols of Kubernetes.
const OF_KUBERNETES: &str = ".k8s.io";
/// The maximum length of the text of an error.
const MAX_ERROR: usize = 50_000;

/// Sends a request to a kubelet, and returns its response.
pub(super) async fn answer(call: Call, subresource: &str, at: AtKubelet, kubelet: Kubelet) -> Result<Response, Status> {
    if subresource == "log" {
        return log(&call, &kubelet, &at.target).await;
    }
    let headers = &call.parts.headers;
    if !proxy::is_upgrade(headers) {
        return Err(Status::bad_request("Upgrade request required"));
    }
    if let Some(upgrade) = Upgrade::requested(&call.parts).filter(|_| !kubelet.serves_websockets) {
        let offered = websocket::protocols(headers);
        if subresource == "portforward" {
            let tunneled: Vec<_> = offered.iter().filter_map(|name| name.strip_prefix(TUNNEL)).collect();
            if !tunneled.is_empty() {
                return tunnel(&call, upgrade, &tunneled, &kubelet, &at.target).await;
            }
        } else if offered.iter().any(|name| name == streaming::CLOSABLE) {
            let options = StreamOptions::parse(call.query.pairs());
            let kubelets = call.state.kubelets.clone();
            let command = move |streams| execute(kubelets, kubelet, at.target, options, streams);
            return Ok(streaming::serve_closable(upgrade, options, command));
        }
    }
    let stream = dial_to_upgrade(&call, &kubelet).await?;
    let request = ProxyRequest { parts: call.parts, body: Bytes::new(), target: at.target, prefix: String::new() };
    proxy::send(request, stream).await
}

async fn dial_to_upgrade(call: &Call, kubelet: &Kubelet) -> Result<Box<dyn proxy::Connection>, Status> {
    let dialed = call.state.kubelets.dial(kubelet).await;
    dialed.map_err(|why| Status::unknown(format!("error dialing backend: {why}")))
}

/// Returns the log of a container.
async fn log(call: &Call, kubelet: &Kubelet, target: &str) -> Result<Response, Status> {
    let failed = |why: String| Status::unknown(format!("Get {:?}: {why}", kubelet.url(target)));
    let request = build(kubelet.request(Method::GET, target))?;
    let stream = call.state.kubelets.dial(kubelet).await.map_err(failed)?;
    let response = proxy::exchange(request, stream).await.map_err(failed)?;
    if let Some(location) = redirection(&response) {
        return Err(Status::unknown(format!("Get {location:?}: redirects forbidden")));
    }
    if !(200..=206).contains(&response.status().as_u16()) {
        let (code, text) = (response.status(), error_text(response).await.map_err(Status::internal)?);
        return Err(refused(code, &text, &call.name));
    }
    let mut log = Response::new(Body::stream(response.into_body()));
    log.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    log.extensions_mut().insert(Content::Bytes);
    Ok(log)
}

/// Converts an unsuccessful response of the kubelet to an error.
fn refused(code: StatusCode, text: &str, name: &str) -> Status {
    let about = |reason: &str, message: String| {
        let details = Details { kind: "pods/log".into(), name: name.into(), ..Details::default() };
        let message = format!("{message} ( pods/log {name})");
        Status { details: Some(details.into()), ..Status::new(code.as_u16(), reason, message) }
    };
    let fixed = |reason: &str, message: &str| about(reason, message.to_owned());
    match code.as_u16() {
        500 => Status::internal(text),
        400 => Status::bad_request(text),
        401 => fixed("Unauthorized", "the server has asked for the client to provide credentials"),
        403 => fixed("Forbidden", text),
        404 => fixed("NotFound", "the server could not find the requested resource"),
        405 => fixed("MethodNotAllowed", "the server does not allow this method on the requested resource"),
        406 if text.is_empty() || text == "unknown" => {
            let message = "the server was unable to respond with a content type that the client supports";
            fixed("NotAcceptable", message)
        }
        406 => fixed("NotAcceptable", text),
        409 => fixed("Conflict", "the server reported a conflict"),
        415 => fixed("UnsupportedMediaType", text),
        422 => fixed("Invalid", "the server rejected our request due to an error in our request"),
        429 => {
            let message = "the server has received too many requests and has asked us to try again later";
            fixed("TooManyRequests", message)
        }
        503 => fixed("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => {
            let message = "the server was unable to return a response in the time allotted, but may still be processing the \
                           request";
            fixed("Timeout", message)
        }
        501.. => about(
            "InternalError",
            format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        ),
        code => {
            about("", format!("the server responded with the status code {code} but did not return more information"))
        }
    }
}

/// Executes a command by a kubelet, with the streams of a client whose WebSocket the kubelet may not understand.
async fn execute(
    kubelets: Arc<Kubelets>,
    kubelet: Kubelet,
    target: String,
    options: StreamOptions,
    streams: CommandStreams,
) -> Result<(), CommandError> {
    let failed = |why: String| {
        CommandError::Unreachable(format!("error sending request: Post {:?}: {why}", kubelet.url(&target)))
    };
    let request = kubelet.request(Method::POST, &target);
    let request = build(
        streaming::PROTOCOLS
            .iter()
            .fold(upgrade_to_spdy(request), |request, name| request.header(SPDY_PROTOCOL, *name)),
    );
    let request = request.map_err(|status| failed(status.message))?;
    let stream = kubelets.dial(&kubelet).await.map_err(failed)?;
    let response = proxy::exchange(request, stream).await.map_err(failed)?;
    if let Some(location) = redirection(&response) {
        let why = format!("error sending request: Post {location:?}: redirect not allowed");
        return Err(CommandError::Unreachable(why));
    }
    if !is_spdy(&response) {
        return Err(CommandError::Unreachable(format!(
            "unable to upgrade connection: {}",
            why_refused(response).await
        )));
    }
    let protocol =
        response.headers().get(SPDY_PROTOCOL).and_then(|name| name.to_str().ok()).unwrap_or_default().to_owned();
    let connection = proxy::upgraded(response).await;
    let connection = connection.map_err(|error| CommandError::Unreachable(error.to_string()))?;
    streaming::execute(connection, &protocol, options, streams).await
}

/// Forwards ports by SPDY that the client sends in a WebSocket.
async fn tunnel(
    call: &Call,
    upgrade: Upgrade,
    protocols: &[&str],
    kubelet: &Kubelet,
    target: &str,
) -> Result<Response, Status> {
    let protocols = protocols.iter().filter(|name| name.ends_with(OF_KUBERNETES));
    let request = kubelet.request(Method::POST, target);
    let request =
        build(protocols.fold(upgrade_to_spdy(request), |request, name| request.header(SPDY_PROTOCOL, *name)))?;
    let stream = dial_to_upgrade(call, kubelet).await?;
    let response = proxy::exchange(request, stream).await.map_err(Status::unknown)?;
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS if is_spdy(&response) => {}
        StatusCode::SWITCHING_PROTOCOLS => {
            return Err(Status::unknown("unable to upgrade: missing upgrade headers in response"));
        }
        code if code.as_u16() >= 400 => return Ok(proxy::passed_on(response, "", None)),
        code => return Err(Status::unknown(format!("invalid upgrade response: status code {}", code.as_u16()))),
    }
    let selected = response.headers().get(SPDY_PROTOCOL).and_then(|name| name.to_str().ok()).unwrap_or_default();
    let protocol = format!("{TUNNEL}{selected}");
    Ok(streaming::serve_tunnel(upgrade, &protocol, proxy::upgraded(response)))
}

fn upgrade_to_spdy(request: http::request::Builder) -> http::request::Builder {
    request.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, streaming::SPDY)
}

fn build(request: http::request::Builder) -> Result<Request<Full<Bytes>>, Status> {
    request.body(Full::default()).map_err(|error| Status::unknown(error.to_string()))
}

/// Returns whether the kubelet continues with SPDY.
fn is_spdy(response: &http::Response<Driven>) -> bool {
    let upgrade = response.headers().get(header::UPGRADE);
    let names_spdy = upgrade.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(streaming::SPDY.as_bytes()));
    response.status() == StatusCode::SWITCHING_PROTOCOLS && names_spdy
}

/// Returns the target of a redirection, which isn't followed.
fn redirection(response: &http::Response<Driven>) -> Option<String> {
    let redirects = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(header::LOCATION).filter(|_| redirects)?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}

/// Returns the text of a response that is an error.
async fn error_text(response: http::Response<Driven>) -> Result<String, BoxError> {
    let mut text = Vec::new();
    let mut body = response.into_body();
    while text.len() < MAX_ERROR
        && let Some(chunk) = body.try_next().await?
    {
        text.extend_from_slice(&chunk);
    }
    text.truncate(MAX_ERROR);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns why a kubelet doesn't continue with another protocol, as a `Status` or as text.
async fn why_refused(response: http::Response<Driven>) -> String {
    let Ok(text) = error_text(response).await else { return "unable to read error from server response".to_owned() };
    let status: Value = serde_json::from_str(&text).unwrap_or_default();
    let mut messages = ["message", "error"].into_iter().filter_map(|field| status[field].as_str()).map(str::trim);
    match messages.find(|message| !message.is_empty()).unwrap_or(text.trim()) {
        "" => "empty server response".to_owned(),
        message => message.to_owned(),
    }
}
