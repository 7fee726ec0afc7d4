//! The reverse proxy behind `pods/proxy`, `services/proxy` and `nodes/proxy`, and behind connections to containers that
//! a kubelet serves: one connection for each request.
//!
//! Responses are streamed. Nothing is spawned for a request that isn't upgraded: its connection is driven while its
//! response is read.

mod links;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{
    FutureExt, Stream, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri, header,
    request::Parts,
    uri::{Authority, PathAndQuery},
};
use http_body::Body as _;
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use kubewright_apimachinery::status::Status;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, copy, split},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use self::links::Links;
use crate::{
    body::{Body, BoxError},
    kubelet::{Kubelet, Kubelets},
    peer::unverified_client_config,
    response::Response,
    storage::Store,
    webhook_client::describe,
    websocket::{self, ConnectionTasks},
};

/// The time limit of connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers that belong to one connection (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The target of a proxied request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// A server at any of these addresses, with TLS or without.
    Addresses(Vec<SocketAddr>, bool),
    /// The kubelet of a node.
    Kubelet(Kubelet),
    /// Another server of a node: the host, the port, and whether it speaks HTTPS.
    Host(String, u16, bool),
}

impl Backend {
    /// Returns where the backend is reached.
    ///
    /// # Errors
    /// Returns 400 if the host of a node has no address, or one that isn't allowed.
    pub(crate) async fn locate(self, kubelets: &Kubelets) -> Result<Endpoint, Status> {
        let unverified = || unverified_client_config().map_err(|error| Status::unknown(error.to_string()));
        let (host, port, config) = match self {
            Self::Addresses(addresses, tls) => {
                let tls = if tls { Some((String::new(), unverified()?)) } else { None };
                return Ok(Endpoint { addresses, tls });
            }
            Self::Host(host, port, tls) => (host, port, if tls { Some(unverified()?) } else { None }),
            Self::Kubelet(Kubelet { host, port, .. }) => {
                (host, port, Some(kubelets.config().map_err(Status::unknown)?))
            }
        };
        let addresses = lookup(&host, port).await.map_err(Status::bad_request)?;
        if !addresses.iter().all(|address| is_allowed(&address.ip())) {
            return Err(Status::bad_request("address not allowed"));
        }
        Ok(Endpoint { addresses, tls: config.map(|config| (host, config)) })
    }
}

/// Where a backend is reached.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// The addresses, any of which can be used.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The name in the handshake and the configuration of TLS. Without a name it is the address.
    pub(crate) tls: Option<(String, Arc<ClientConfig>)>,
}

/// Resolves the name of a host.
pub(crate) async fn lookup(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = tokio::net::lookup_host((host, port)).await;
    found.map(Iterator::collect).map_err(|_| format!("lookup {host}: no such host"))
}

/// Returns whether requests may be sent to an address. Kubernetes doesn't allow loopback addresses, too; here they are
/// those of pods and of the node.
pub(crate) fn is_allowed(address: &IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !address.is_unspecified() && !address.is_multicast() && !link_local
}

/// An identifier of an object with the scheme and port of its server, as far as they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identifier<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) name: &'a str,
    pub(crate) port: &'a str,
}

impl<'a> Identifier<'a> {
    /// Parses `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`, an identifier of an object of this kind.
    pub(crate) fn parse(kind: &str, identifier: &'a str) -> Result<Self, Status> {
        let parts: Vec<_> = identifier.split(':').collect();
        let (scheme, name, port) = match *parts.as_slice() {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => ("", "", ""),
        };
        if name.is_empty() || !matches!(scheme, "" | "http" | "https") {
            return Err(Status::bad_request(format!("invalid {kind} request {identifier:?}")));
        }
        Ok(Self { scheme, name, port })
    }
}

/// Resolves the identifier of an object, such as `web`, `web:http` or `https:web:443`, to the backend of requests for
/// it. The arguments are the store, the kubelets, the stored resource, the namespace and the identifier.
pub(crate) type ProxyResolver = fn(&Store, &Kubelets, &str, &str, &str) -> Result<Backend, Status>;

/// A request to be sent on.
pub(crate) struct ProxyRequest {
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    /// The path and query at the backend.
    pub(crate) target: String,
    /// The path up to that of the backend, such as `/api/v1/namespaces/default/pods/web/proxy`. Empty if the backend
    /// has the same paths as this server.
    pub(crate) prefix: String,
}

/// Sends a request to the first of several addresses that accepts a connection, and returns its response.
///
/// # Errors
/// Returns 503 if the backend can't be reached or doesn't speak HTTP; 500 if the request asks for another protocol.
pub(crate) async fn forward(request: ProxyRequest, endpoint: &Endpoint) -> Result<Response, Status> {
    let upgrades = is_upgrade(&request.parts.headers);
    let stream = dial(endpoint).await.map_err(|why| match upgrades {
        true => Status::unknown(format!("error dialing backend: {why}")),
        false => unreachable(why),
    })?;
    send(request, stream).await
}

/// Sends a request over a connection that was made for it, and returns its response.
///
/// # Errors
/// Returns 503 if the other side doesn't speak HTTP; 500 if the request asks for another protocol.
pub(crate) async fn send(request: ProxyRequest, stream: Box<dyn Connection>) -> Result<Response, Status> {
    let ProxyRequest { mut parts, body, target, prefix } = request;
    let upgrade = upgrade_protocol(&parts.headers);
    let tasks = parts.extensions.remove::<Arc<ConnectionTasks>>();
    let address = tasks.as_ref().and_then(|tasks| tasks.remote);
    let client = parts.extensions.remove::<OnUpgrade>().zip(tasks);
    add_host(&mut parts);
    parts.uri = target
        .parse::<PathAndQuery>()
        .map(Uri::from)
        .map_err(|error| Status::bad_request(format!("invalid path {target:?}: {error}")))?;
    parts.version = http::Version::HTTP_11;
    prepare(&mut parts.headers, &prefix, parts.uri.path(), upgrade.as_ref());
    add_client(&mut parts.headers, address);
    parts.extensions.clear();
    let request = Request::from_parts(parts, Full::new(body));
    let host = request.headers().get(header::HOST).cloned();
    let response = exchange(request, stream).await.map_err(|why| match &upgrade {
        Some(_) => Status::unknown(why),
        None => unreachable(why),
    })?;
    let Some(protocol) = upgrade else { return Ok(passed_on(response, &prefix, host.as_ref())) };
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {}
        // The server has refused to switch, and the client learns why.
        code if code.as_u16() >= 400 => return Ok(passed_on(response, &prefix, host.as_ref())),
        code => return Err(Status::unknown(format!("invalid upgrade response: status code {}", code.as_u16()))),
    }
    let (mut parts, Driven { connection, .. }) = response.into_parts();
    let backend = parts.extensions.remove::<OnUpgrade>();
    let (Some(backend), Some((client, tasks))) = (backend, client) else {
        return Err(unavailable("invalid upgrade response: the request can't be upgraded"));
    };
    spawn_tunnel(&tasks, client, backend, connection);
    clean(&mut parts.headers);
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    parts.headers.insert(header::UPGRADE, protocol);
    Ok(http::Response::from_parts(parts, Body::empty()))
}

/// Sends a request over a connection that was made for it. The body of the response drives the connection.
///
/// # Errors
/// Returns the words of Go's client if the other side doesn't speak HTTP.
pub(crate) async fn exchange(
    request: Request<Full<Bytes>>,
    stream: Box<dyn Connection>,
) -> Result<http::Response<Driven>, String> {
    let failed = |error: hyper::Error| match error.is_incomplete_message() {
        true => "EOF".to_owned(),
        false => describe(&error),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let mut connection: BoxFuture<'static, ()> = Box::pin(connection.with_upgrades().map(|ended| {
        if let Err(error) = ended {
            tracing::debug!(%error, "a proxied connection failed");
        }
    }));
    let mut response = pin!(sender.send_request(request));
    let mut ended = false;
    let response = loop {
        tokio::select! {
            biased;
            response = &mut response => break response.map_err(failed)?,
            () = &mut connection, if !ended => ended = true,
        }
    };
    Ok(response.map(|incoming| Driven { connection: (!ended).then_some(connection), incoming }))
}

/// Returns the connection of a response that accepts another protocol.
pub(crate) async fn upgraded(response: http::Response<Driven>) -> Result<TokioIo<Upgraded>, hyper::Error> {
    let (mut parts, Driven { connection, .. }) = response.into_parts();
    let upgrade = OptionFuture::from(parts.extensions.remove::<OnUpgrade>());
    let (upgraded, _) = tokio::join!(upgrade, OptionFuture::from(connection));
    match upgraded {
        Some(upgraded) => upgraded.map(TokioIo::new),
        None => std::future::pending().await,
    }
}

/// Returns the response for the client.
pub(crate) fn passed_on(response: http::Response<Driven>, prefix: &str, host: Option<&HeaderValue>) -> Response {
    let (mut parts, body) = response.into_parts();
    clean(&mut parts.headers);
    rewrite_location(&mut parts.headers, prefix, host);
    let host = host.and_then(|host| host.to_str().ok());
    let body = match Links::of(&mut parts.headers, prefix, host) {
        Some(links) if !body.incoming.is_end_stream() => Body::stream(rewritten(body, links)),
        _ => Body::stream(body),
    };
    http::Response::from_parts(parts, body)
}

/// A connection to a backend.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Starts TLS on a connection. As in kube-apiserver, certificates of backends aren't verified: pods have none that
/// could be.
async fn start_tls(
    stream: TcpStream,
    address: IpAddr,
    (host, config): &(String, Arc<ClientConfig>),
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.clone()).unwrap_or_else(|_| ServerName::from(address));
    TlsConnector::from(config.clone()).connect(name, stream).await
}

/// Connects to the first of several addresses that accepts a connection.
///
/// # Errors
/// Returns the words of Go's client.
pub(crate) async fn dial(endpoint: &Endpoint) -> Result<Box<dyn Connection>, String> {
    let mut failure = "no endpoints available".to_owned();
    for address in &endpoint.addresses {
        let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                failure = match error.kind() {
                    io::ErrorKind::ConnectionRefused => format!("dial tcp {address}: connect: connection refused"),
                    _ => format!("dial tcp {address}: {error}"),
                };
                continue;
            }
            Err(_) => {
                failure = format!("dial tcp {address}: i/o timeout");
                continue;
            }
        };
        // Keystrokes are small messages.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection can't send small messages at once");
        }
        let Some(tls) = &endpoint.tls else { return Ok(Box::new(stream)) };
        failure = match timeout(HANDSHAKE_TIMEOUT, start_tls(stream, address.ip(), tls)).await {
            Ok(Ok(stream)) => return Ok(Box::new(stream)),
            Ok(Err(error)) => describe(&error),
            Err(_) => "net/http: TLS handshake timeout".to_owned(),
        };
    }
    Err(failure)
}

fn unavailable(message: impl Into<String>) -> Status {
    Status::new(503, "ServiceUnavailable", message)
}

fn unreachable(why: impl std::fmt::Display) -> Status {
    unavailable(format!("error trying to reach service: {why}"))
}

/// Returns whether a request asks to continue with another protocol.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    upgrade_protocol(headers).is_some()
}

/// Returns the protocol that a request asks to continue with.
fn upgrade_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).to_lowercase().contains("upgrade");
    let asked = headers.get_all(header::CONNECTION).iter().any(asked);
    headers.get(header::UPGRADE).filter(|_| asked).cloned()
}

/// Adds the header `Host`, which a request of HTTP/1.1 must have, and Go's servers insist on (RFC 9112, section 3.2).
/// In HTTP/2, its value is the authority of the URI.
fn add_host(parts: &mut Parts) {
    if !parts.headers.contains_key(header::HOST) {
        let authority = parts.uri.authority().map_or("", Authority::as_str);
        parts.headers.extend(HeaderValue::try_from(authority).ok().map(|host| (header::HOST, host)));
    }
}

/// Removes headers that belong to the connection to the client, and those that prove its identity.
fn prepare(headers: &mut HeaderMap, prefix: &str, path: &str, upgrade: Option<&HeaderValue>) {
    clean(headers);
    headers.remove(header::AUTHORIZATION);
    websocket::remove_token(headers);
    let impersonation: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in impersonation {
        headers.remove(name);
    }
    if !prefix.is_empty()
        && let Ok(original) = HeaderValue::try_from(format!("{prefix}{path}"))
    {
        headers.insert("x-forwarded-uri", original);
    }
    if let Some(protocol) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
    }
}

/// Adds the address of the client to those that the request has come from.
fn add_client(headers: &mut HeaderMap, address: Option<IpAddr>) {
    const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    let Some(address) = address.map(|address| address.to_string()) else { return };
    let earlier = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<_> = earlier.chain([address.as_str()]).collect();
    if let Ok(value) = HeaderValue::try_from(all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Removes the headers that belong to one connection.
fn clean(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Makes a redirect within the backend lead through the proxy.
fn rewrite_location(headers: &mut HeaderMap, prefix: &str, host: Option<&HeaderValue>) {
    let Some(location) = headers.get(header::LOCATION).and_then(|value| value.to_str().ok()) else { return };
    let Ok(uri) = location.parse::<Uri>() else { return };
    let same_host = uri.authority().is_none_or(|to| host.is_some_and(|host| host.as_bytes() == to.as_str().as_bytes()));
    let path = uri.path_and_query().map_or("", PathAndQuery::as_str);
    if same_host
        && path.starts_with('/')
        && !path.starts_with(prefix)
        && let Ok(value) = HeaderValue::try_from(format!("{prefix}{path}"))
    {
        headers.insert(header::LOCATION, value);
    }
}

/// Copies bytes between the client and the backend until one of them closes its connection.
fn spawn_tunnel(
    tasks: &Arc<ConnectionTasks>,
    client: OnUpgrade,
    backend: OnUpgrade,
    connection: Option<BoxFuture<'static, ()>>,
) {
    let closing = tasks.closing.clone();
    tasks.spawn(async move {
        let tunnel = async {
            let connection = OptionFuture::from(connection);
            let (upgraded, _) = tokio::join!(async { tokio::try_join!(client, backend) }, connection);
            let copied = match upgraded {
                Ok((client, backend)) => copy_until_end(TokioIo::new(client), TokioIo::new(backend)).await,
                Err(error) => return tracing::debug!(%error, "a proxied connection wasn't upgraded"),
            };
            if let Err(error) = copied {
                tracing::debug!(%error, "a proxied connection failed");
            }
        };
        let _ended = closing.run_until_cancelled(tunnel).await;
    });
}

/// Copies bytes in both directions until one side ends its part, as Kubernetes does.
pub(crate) async fn copy_until_end(
    one: impl AsyncRead + AsyncWrite,
    other: impl AsyncRead + AsyncWrite,
) -> io::Result<()> {
    let ((mut one, mut to_one), (mut other, mut to_other)) = (split(one), split(other));
    tokio::select! {
        biased;
        copied = copy(&mut one, &mut to_other) => copied.map(drop),
        copied = copy(&mut other, &mut to_one) => copied.map(drop),
    }
}

/// The body of a response, and the connection that it arrives on.
pub(crate) struct Driven {
    /// `None` after the connection has ended.
    connection: Option<BoxFuture<'static, ()>>,
    incoming: Incoming,
}

impl Stream for Driven {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(connection) = &mut self.connection
            && connection.poll_unpin(context).is_ready()
        {
            self.connection = None;
        }
        loop {
            return match Pin::new(&mut self.incoming).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => Poll::Ready(Some(Ok(data))),
                    // Trailers belong to the connection.
                    Err(_) => continue,
                },
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}

/// Rewrites the links of a page while it arrives.
fn rewritten(page: Driven, links: Links) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
    let ends = page.map(Some).chain(stream::iter([None]));
    stream::unfold((ends, Some(links)), |(mut ends, mut links)| async move {
        let part = match (ends.next().await?, links.as_mut()) {
            (Some(Ok(part)), Some(links)) => links.push(&part).map_err(BoxError::from),
            (Some(Err(error)), _) => Err(error),
            (None, _) | (_, None) => links.take()?.finish().map_err(BoxError::from),
        };
        if part.is_err() {
            links = None;
        }
        Some((part.map(Bytes::from), (ends, links)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn headers_of_the_connection_and_credentials_are_removed() {
        let mut sent = headers(&[
            ("connection", "keep-alive, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("authorization", "Bearer secret"),
            ("impersonate-user", "jane"),
            ("accept", "text/html"),
        ]);
        prepare(&mut sent, "/api/v1/namespaces/n/pods/p/proxy", "/a", None);
        let forwarded = ("x-forwarded-uri", "/api/v1/namespaces/n/pods/p/proxy/a");
        assert_eq!(sent, headers(&[("accept", "text/html"), forwarded]));
        let mut sent = headers(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
        let protocol = upgrade_protocol(&sent);
        prepare(&mut sent, "/p", "/", protocol.as_ref());
        assert_eq!((&sent["connection"], &sent["upgrade"]), (&HeaderValue::from_static("Upgrade"), &protocol.unwrap()));
    }

    #[test]
    fn addresses_of_clients_are_added() {
        let mut sent = headers(&[("x-forwarded-for", "10.0.0.1"), ("x-forwarded-for", "10.0.0.2")]);
        add_client(&mut sent, None);
        assert_eq!(sent.get_all("x-forwarded-for").iter().count(), 2);
        add_client(&mut sent, Some([127, 0, 0, 1].into()));
        assert_eq!(sent, headers(&[("x-forwarded-for", "10.0.0.1, 10.0.0.2, 127.0.0.1")]));
    }

    #[test]
    fn redirects_lead_through_the_proxy() {
        let check = |location: &str, expect: &str| {
            let mut headers = headers(&[("location", location)]);
            rewrite_location(&mut headers, "/p/proxy", Some(&HeaderValue::from_static("localhost:6443")));
            assert_eq!(headers["location"], expect, "{location}");
        };
        check("/login?a=b", "/p/proxy/login?a=b");
        check("/p/proxy/login", "/p/proxy/login");
        check("https://localhost:6443/login", "/p/proxy/login");
        check("https://example.com/login", "https://example.com/login");
    }
}
