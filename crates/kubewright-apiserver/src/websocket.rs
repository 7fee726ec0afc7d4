//! Streams over WebSocket (RFC 6455): watches and container logs, for clients that can't read a chunked response.
//!
//! The handshake follows `k8s.io/streaming/pkg/httpstream/wsstream` and `golang.org/x/net/websocket`, which
//! kube-apiserver uses. Clients only send control frames: their messages are limited in size and dropped.

mod socket;

use std::{net::IpAddr, sync::Arc};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ring::digest::SHA1_FOR_LEGACY_USE_ONLY;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tokio_websockets::{CloseCode, Message};

pub(crate) use self::socket::Socket;
use self::socket::close_code;
use crate::{
    body::{Body, BoxError},
    response::Response,
};

/// The size of the messages into which a byte stream is split.
const CHUNK: usize = 2 << 10;
/// The maximum size of frames and messages that clients send.
const MAX_RECEIVED: usize = 64 << 10;
/// The string that is hashed together with the client's key (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The prefix of the subprotocol that contains a bearer token, for browsers, which can't set other headers.
const BEARER_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The content of a response, in its extensions, if it can be sent over WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Watch events. Each chunk is one event, and one text message.
    Events,
    /// Bytes, as binary messages or in Base64.
    Bytes,
}

/// The encoding of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Text,
    Binary,
    Base64,
}

/// The tasks of a connection, in the extensions of its requests. Tasks that outlive the request run here.
#[derive(Debug)]
pub(crate) struct ConnectionTasks {
    /// The address of the client.
    pub(crate) remote: Option<IpAddr>,
    pub(crate) tracker: TaskTracker,
    /// Cancelled when the server begins to shut down.
    pub(crate) closing: CancellationToken,
    /// Cancelled when all tasks have to end.
    pub(crate) abort: CancellationToken,
    /// The connection counts as open as long as a task of it runs.
    pub(crate) _permit: OwnedSemaphorePermit,
}

impl ConnectionTasks {
    /// Runs a task until it ends, or until all tasks have to.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let tasks = self.clone();
        self.tracker.spawn(async move {
            let _ended = tasks.abort.run_until_cancelled(task).await;
        });
    }
}

/// A request to continue as WebSocket.
pub(crate) struct Upgrade {
    method: Method,
    headers: HeaderMap,
    upgraded: OnUpgrade,
    tasks: Arc<ConnectionTasks>,
}

/// A handshake that is refused, with the words of `golang.org/x/net/websocket`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Method,
    Key,
    Version,
    /// The origin is missing or no URL, or no subprotocol is supported.
    Forbidden,
    /// There are several subprotocols to choose from.
    Protocols,
}

/// An accepted handshake.
#[derive(Debug, PartialEq, Eq)]
struct Accepted {
    accept: String,
    /// The selected subprotocol, empty for none.
    protocol: String,
    framing: Framing,
}

impl Upgrade {
    /// Returns the upgrade that a request asks for. Only connections of a listener can be upgraded.
    pub(crate) fn requested(parts: &Parts) -> Option<Self> {
        if !is_requested(&parts.headers) {
            return None;
        }
        Some(Self {
            method: parts.method.clone(),
            headers: parts.headers.clone(),
            upgraded: parts.extensions.get::<OnUpgrade>()?.clone(),
            tasks: parts.extensions.get::<Arc<ConnectionTasks>>()?.clone(),
        })
    }

    /// Returns the response to the handshake. If it is accepted, a task of the connection sends the body.
    pub(crate) fn respond(self, body: Body, content: Content) -> Response {
        match handshake(&self.method, &self.headers, content) {
            Ok(accepted) => {
                let response = accepted.response();
                let Self { upgraded, tasks, .. } = self;
                let closing = tasks.closing.clone();
                tasks.spawn(async move { serve(upgraded, body, accepted.framing, &closing).await });
                response
            }
            Err(refusal) => refusal.response(),
        }
    }
}

/// An accepted connection, which becomes a WebSocket when the response has been sent.
pub(crate) struct PendingSocket {
    upgraded: OnUpgrade,
    pub(crate) tasks: Arc<ConnectionTasks>,
    /// The selected subprotocol, empty for none.
    pub(crate) protocol: String,
}

impl Upgrade {
    /// Accepts a connection with the first subprotocol of the client's that is supported; without one if the client
    /// asks for none. Returns the response to send, and the connection unless the handshake is refused.
    pub(crate) fn negotiate(self, supported: &[&str]) -> (Response, Option<PendingSocket>) {
        let selected = offer(&self.method, &self.headers).and_then(|Offer { accept, protocols }| {
            let none = protocols.is_empty().then(String::new);
            let protocol = none.or_else(|| protocols.into_iter().find(|name| supported.contains(&name.as_str())));
            Ok(Accepted { accept, protocol: protocol.ok_or(Refusal::Forbidden)?, framing: Framing::Binary })
        });
        match selected {
            Ok(accepted) => {
                let response = accepted.response();
                let Self { upgraded, tasks, .. } = self;
                (response, Some(PendingSocket { upgraded, tasks, protocol: accepted.protocol }))
            }
            Err(refusal) => (refusal.response(), None),
        }
    }
}

impl PendingSocket {
    /// Waits until the connection is a WebSocket. Returns `None` if it ends before.
    pub(crate) async fn open(self, max_message: usize) -> Option<Socket> {
        match self.upgraded.await {
            Ok(stream) => Some(Socket::new(TokioIo::new(stream), max_message)),
            Err(error) => {
                tracing::debug!(%error, "a connection ended before it became a WebSocket");
                None
            }
        }
    }
}

/// Returns whether a request asks to continue as WebSocket.
pub(crate) fn is_requested(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let connection = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).to_lowercase().contains("upgrade");
    upgrade && headers.get_all(header::CONNECTION).iter().any(connection)
}

/// Returns the bearer token among the subprotocols of a request, as
/// `base64url.bearer.authorization.k8s.io.<token in Base64>`.
///
/// # Errors
/// If there are several tokens, if the token is malformed, or if it is the only subprotocol, since the response must
/// not repeat it.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let protocols = protocols(headers);
    let mut tokens = protocols.iter().filter_map(|protocol| protocol.strip_prefix(BEARER_PREFIX));
    let Some(token) = tokens.next() else { return Ok(None) };
    if tokens.next().is_some() {
        return Err("multiple base64.bearer.authorization tokens specified");
    }
    let token = URL_SAFE_NO_PAD.decode(token).map_err(|_| "invalid base64.bearer.authorization token encoding")?;
    let token = String::from_utf8(token).map_err(|_| "invalid base64.bearer.authorization token")?;
    match (token.is_empty(), protocols.len()) {
        (true, _) => Ok(None),
        (false, 1) => Err("missing additional subprotocol"),
        (false, _) => Ok(Some(token)),
    }
}

/// Removes the bearer token from the subprotocols of a request.
pub(crate) fn remove_token(headers: &mut HeaderMap) {
    let mut kept = protocols(headers);
    let all = kept.len();
    kept.retain(|protocol| !protocol.starts_with(BEARER_PREFIX));
    if kept.len() < all
        && let Ok(value) = HeaderValue::try_from(kept.join(","))
    {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
    }
}

/// Returns the requested subprotocols.
pub(crate) fn protocols(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

fn handshake(method: &Method, headers: &HeaderMap, content: Content) -> Result<Accepted, Refusal> {
    let Offer { accept, mut protocols } = offer(method, headers)?;
    let origin = headers.get(header::ORIGIN).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (protocol, framing) = match content {
        Content::Events => {
            if !is_origin(origin) {
                return Err(Refusal::Forbidden);
            }
            if protocols.len() > 1 {
                return Err(Refusal::Protocols);
            }
            (protocols.pop().unwrap_or_default(), Framing::Text)
        }
        Content::Bytes if protocols.is_empty() => (String::new(), Framing::Binary),
        Content::Bytes => {
            let supported = |name: String| match name.as_str() {
                "binary.k8s.io" => Some((name, Framing::Binary)),
                "base64.binary.k8s.io" => Some((name, Framing::Base64)),
                _ => None,
            };
            protocols.into_iter().find_map(supported).ok_or(Refusal::Forbidden)?
        }
    };
    Ok(Accepted { accept, protocol, framing })
}

/// A well-formed handshake.
struct Offer {
    /// The response to the client's key.
    accept: String,
    /// The subprotocols that the client supports.
    protocols: Vec<String>,
}

fn offer(method: &Method, headers: &HeaderMap) -> Result<Offer, Refusal> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    if method != Method::GET {
        return Err(Refusal::Method);
    }
    let key = text(header::SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(Refusal::Key);
    }
    if text(header::SEC_WEBSOCKET_VERSION) != "13" {
        return Err(Refusal::Version);
    }
    let mut protocols = protocols(headers);
    protocols.retain(|protocol| !protocol.starts_with(BEARER_PREFIX));
    let mut digest = ring::digest::Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key.as_bytes());
    digest.update(GUID);
    Ok(Offer { accept: STANDARD.encode(digest.finish()), protocols })
}

/// Returns whether an origin is a URL with a scheme, or an absolute path. Every such origin is accepted.
fn is_origin(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|next| next.is_ascii_alphanumeric() || matches!(next, '+' | '-' | '.'))
    };
    text.starts_with('/') || text.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme))
}

impl Accepted {
    fn response(&self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        let texts = [(header::SEC_WEBSOCKET_ACCEPT, &self.accept), (header::SEC_WEBSOCKET_PROTOCOL, &self.protocol)];
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            // Both come from a header or from Base64.
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        }
        response
    }
}

impl Refusal {
    fn response(self) -> Response {
        let (code, text) = match self {
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "bad method"),
            Self::Key => (StatusCode::BAD_REQUEST, "mismatch challenge/response"),
            Self::Version => (StatusCode::BAD_REQUEST, "missing or bad WebSocket Version"),
            Self::Forbidden => (StatusCode::FORBIDDEN, ""),
            Self::Protocols => (StatusCode::BAD_REQUEST, ""),
        };
        let mut response = Response::new(Body::from(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        if self == Self::Version {
            response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        response
    }
}

/// Sends a body as messages until it ends, the client closes the connection, or the server shuts down.
async fn serve(upgraded: OnUpgrade, body: Body, framing: Framing, closing: &CancellationToken) {
    let mut socket = match upgraded.await {
        // Nothing but control frames arrives.
        Ok(stream) => Socket::new(TokioIo::new(stream), MAX_RECEIVED),
        Err(error) => return tracing::debug!(%error, "a connection ended before it became a WebSocket"),
    };
    let mut messages = std::pin::pin!(messages(body, framing));
    let code = loop {
        tokio::select! {
            biased;
            () = closing.cancelled() => break CloseCode::GOING_AWAY,
            received = socket.next() => match received {
                // Pings and close frames have been answered.
                Some(Ok(_)) => {}
                Some(Err(error)) => match close_code(&error) {
                    Some(code) => break code,
                    None => return tracing::debug!(%error, "a WebSocket failed"),
                },
                None => return,
            },
            message = messages.next() => match message {
                Some(Ok(message)) => {
                    if let Err(error) = socket.send(message).await {
                        return tracing::debug!(%error, "failed to send to a WebSocket");
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(error, "the body of a WebSocket failed");
                    break CloseCode::INTERNAL_SERVER_ERROR;
                }
                // A watch ends with the server, too.
                None if closing.is_cancelled() => break CloseCode::GOING_AWAY,
                None => break CloseCode::NORMAL_CLOSURE,
            },
        }
    };
    socket.close(code).await;
}

/// Returns the body as messages.
fn messages(body: Body, framing: Framing) -> impl Stream<Item = Result<Message, BoxError>> + Send {
    let chunks = body.into_data_stream();
    // Byte streams begin with an empty message, which shows the client that the stream is open.
    let first = (framing != Framing::Text).then(|| Ok(message(Bytes::new(), framing)));
    stream::iter(first).chain(chunks.flat_map(move |chunk| {
        let parts = match chunk {
            Ok(chunk) if framing == Framing::Text => vec![Ok(chunk)],
            Ok(chunk) => {
                (0..chunk.len()).step_by(CHUNK).map(|at| Ok(chunk.slice(at..chunk.len().min(at + CHUNK)))).collect()
            }
            Err(error) => vec![Err(error)],
        };
        stream::iter(parts).map(move |part| part.map(|part| message(part, framing)))
    }))
}

fn message(bytes: Bytes, framing: Framing) -> Message {
    match framing {
        Framing::Text if str::from_utf8(&bytes).is_ok() => Message::text(bytes),
        Framing::Text | Framing::Binary => Message::binary(bytes),
        Framing::Base64 => Message::text(STANDARD.encode(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn request(more: &[(&'static str, &str)]) -> HeaderMap {
        // The key of RFC 6455, section 1.3.
        let mut all = vec![("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="), ("sec-websocket-version", "13")];
        all.extend_from_slice(more);
        headers(&all)
    }

    #[test]
    fn an_upgrade_is_recognized_by_both_headers() {
        for (lines, expect) in [
            (&[("upgrade", "websocket"), ("connection", "Upgrade")][..], true),
            (&[("upgrade", "WebSocket"), ("connection", "keep-alive, Upgrade")], true),
            (&[("upgrade", "websocket"), ("connection", "keep-alive"), ("connection", "upgrade")], true),
            (&[("upgrade", "websocket")], false),
            (&[("connection", "Upgrade")], false),
            (&[("upgrade", "SPDY/3.1"), ("connection", "Upgrade")], false),
        ] {
            assert_eq!(is_requested(&headers(lines)), expect, "{lines:?}");
        }
    }

    #[test]
    fn the_handshake_of_a_watch_needs_an_origin() {
        let check = |more: &[(&'static str, &str)]| handshake(&Method::GET, &request(more), Content::Events);
        let origin = ("origin", "https://127.0.0.1:6443");
        let accepted = check(&[origin]).unwrap();
        assert_eq!((accepted.accept.as_str(), accepted.framing), ("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", Framing::Text));
        assert_eq!(check(&[origin, ("sec-websocket-protocol", "anything")]).unwrap().protocol, "anything");
        assert_eq!(check(&[origin, ("sec-websocket-protocol", "one, two")]), Err(Refusal::Protocols));
        assert_eq!(check(&[]), Err(Refusal::Forbidden));
        assert_eq!(check(&[("origin", "null")]), Err(Refusal::Forbidden));
        assert_eq!(handshake(&Method::POST, &request(&[origin]), Content::Events), Err(Refusal::Method));
        let version = headers(&[("sec-websocket-key", "x"), ("sec-websocket-version", "8"), origin]);
        assert_eq!(handshake(&Method::GET, &version, Content::Events), Err(Refusal::Version));
        assert_eq!(handshake(&Method::GET, &headers(&[origin]), Content::Events), Err(Refusal::Key));
    }

    #[test]
    fn byte_streams_select_the_first_supported_protocol() {
        for (sent, expect) in [
            ("", Ok(("", Framing::Binary))),
            ("binary.k8s.io", Ok(("binary.k8s.io", Framing::Binary))),
            ("base64.binary.k8s.io", Ok(("base64.binary.k8s.io", Framing::Base64))),
            ("other, base64.binary.k8s.io,binary.k8s.io", Ok(("base64.binary.k8s.io", Framing::Base64))),
            ("base64url.bearer.authorization.k8s.io.YQ, binary.k8s.io", Ok(("binary.k8s.io", Framing::Binary))),
            ("v4.channel.k8s.io", Err(Refusal::Forbidden)),
        ] {
            let result = handshake(&Method::GET, &request(&[("sec-websocket-protocol", sent)]), Content::Bytes);
            let result = result.as_ref().map(|accepted| (accepted.protocol.as_str(), accepted.framing));
            assert_eq!(result.map_err(|refusal| *refusal), expect, "{sent}");
        }
    }

    #[test]
    fn a_token_is_one_of_several_protocols() {
        for (sent, expect) in [
            ("", Ok(None)),
            ("binary.k8s.io", Ok(None)),
            ("base64url.bearer.authorization.k8s.io.dG9r, binary.k8s.io", Ok(Some("tok"))),
            ("base64url.bearer.authorization.k8s.io.dG9r", Err("missing additional subprotocol")),
            (
                "x,base64url.bearer.authorization.k8s.io.dG9r==",
                Err("invalid base64.bearer.authorization token encoding"),
            ),
            ("x,base64url.bearer.authorization.k8s.io._w", Err("invalid base64.bearer.authorization token")),
            (
                "x,base64url.bearer.authorization.k8s.io.YQ,base64url.bearer.authorization.k8s.io.YQ",
                Err("multiple base64.bearer.authorization tokens specified"),
            ),
        ] {
            let token = bearer_token(&headers(&[("sec-websocket-protocol", sent)]));
            assert_eq!(token.as_ref().map(|token| token.as_deref()).map_err(|error| *error), expect, "{sent}");
        }
    }

    #[tokio::test]
    async fn byte_streams_are_split_into_messages() {
        let body = || Body::stream(stream::iter([Ok(Bytes::from(vec![b'x'; CHUNK + 1])), Ok(Bytes::from("ab"))]));
        let sent = async |framing| messages(body(), framing).map(Result::unwrap).collect::<Vec<_>>().await;
        let lengths: Vec<_> = sent(Framing::Binary).await.iter().map(|sent| sent.as_payload().len()).collect();
        assert_eq!(lengths, [0, CHUNK, 1, 2]);
        assert_eq!(sent(Framing::Base64).await.last().unwrap().as_text(), Some("YWI="));
        assert_eq!(sent(Framing::Text).await.len(), 2, "an event is one message, whatever its size");
    }
}
