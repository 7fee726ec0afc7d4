//! The client of webhooks: HTTPS with pooled connections, to a URL or to the endpoints of a service, or a transport
//! within the process.

use std::{
    error::Error,
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use rustls::CertificateError;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::{
    peer::verified_client_config,
    storage::Store,
    webhook_transport::{ServerTrust, WebhookTransport},
};

/// The maximum size of a webhook's response in bytes. A patch of the largest object fits in base64.
const MAX_RESPONSE: usize = 7 * 1024 * 1024;
/// The time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The maximum number of idle connections to one webhook.
const MAX_IDLE: usize = 32;

type Client = legacy::Client<HttpsConnector<Dialer>, Full<Bytes>>;

/// Resolves the namespace, name and port of a service to the addresses of its endpoints. If there are none, the error
/// gives the reason in Kubernetes' wording.
pub(crate) type ServiceResolver = fn(&Store, &str, &str, u16) -> Result<Vec<SocketAddr>, String>;

/// The dependencies of calls to webhooks: the store, the time, randomness, the endpoints of services, and what replaces
/// connections.
pub(crate) struct WebhookClient {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) resolver: ServiceResolver,
    pub(crate) transport: Option<Arc<dyn WebhookTransport>>,
}

impl fmt::Debug for WebhookClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookClient").finish_non_exhaustive()
    }
}

/// A port of a service of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServicePort {
    namespace: String,
    name: String,
    port: u16,
}

/// The address of a webhook, with the connections to it.
pub(crate) struct Endpoint {
    url: String,
    service: Option<ServicePort>,
    authority: Option<Vec<u8>>,
    client: OnceLock<Result<Client, String>>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.url).finish()
    }
}

/// Returns a URL with a [clean](clean) path.
fn with_clean_path(url: &str) -> String {
    let begin = url.find("://").map_or(0, |scheme| scheme + 3);
    let authority = url[begin..].find('/').map_or(url.len(), |path| begin + path);
    format!("{}{}", &url[..authority], clean(&url[authority..]))
}

/// Returns a path as Kubernetes' client requests it: without empty parts, `.`, `..` and a slash at the end. envtest of
/// controller-runtime writes `//` before the path of each webhook, which servers in Go answer with a redirect.
fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

impl Endpoint {
    /// Returns the endpoint of a valid `clientConfig`. The timeout, in seconds, is sent to the webhook as the query
    /// parameter `timeout`.
    pub(crate) fn new(config: &Value, seconds: Option<u64>) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let service = config.get("service").filter(|service| service.is_object()).map(|service| ServicePort {
            namespace: text(&service["namespace"]),
            name: text(&service["name"]),
            port: service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
        });
        let url = match &service {
            Some(ServicePort { namespace, name, port }) => {
                format!("https://{name}.{namespace}.svc:{port}{}", clean(&text(&config["service"]["path"])))
            }
            None => with_clean_path(&text(&config["url"])),
        };
        let authority = config["caBundle"].as_str().filter(|bundle| !bundle.is_empty());
        Self {
            url: seconds.map_or(url.clone(), |seconds| format!("{url}?timeout={seconds}s")),
            service,
            authority: authority.map(|bundle| STANDARD.decode(bundle).unwrap_or_default()),
            client: OnceLock::new(),
        }
    }

    /// Sends a review and returns the body of the response. Errors have the wording of Kubernetes' client.
    pub(crate) async fn post(
        &self,
        webhooks: &WebhookClient,
        review: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, String> {
        let failed = |why: String| format!("Post \"{}\": {why}", self.url);
        let uri: Uri = self.url.parse().map_err(|error| failed(format!("{error}")))?;
        let request = Request::post(uri)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(review)
            .map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let response = match &webhooks.transport {
                Some(transport) => transport.call(request, self.trust(&webhooks.clock)).await.map_err(failed)?,
                None => self.send(webhooks, request).await?,
            };
            let (head, body) = response.into_parts();
            match head.status {
                code if !code.is_success() => Err(unsuccessful(code, &body)),
                code if body.is_empty() => {
                    let media_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
                    let media_type = media_type.unwrap_or_default();
                    Err(format!("0-length response with status code: {} and content type: {media_type}", code.as_u16()))
                }
                _ => Ok(body),
            }
        };
        let in_time = tokio::time::timeout(timeout, exchange).await;
        in_time.unwrap_or_else(|_| Err(failed("context deadline exceeded".to_owned())))
    }

    /// Returns which servers are trusted as this endpoint.
    pub(crate) fn trust(&self, clock: &SharedClock) -> ServerTrust {
        let host = self.url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        ServerTrust::new(host.unwrap_or_default(), self.authority.clone(), clock)
    }

    /// Sends a review over a connection.
    async fn send(&self, webhooks: &WebhookClient, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let failed = |why: String| format!("Post \"{}\": {why}", self.url);
        let client = self.client.get_or_init(|| self.connect(webhooks)).as_ref().map_err(Clone::clone)?;
        let response = client.request(request.map(Full::new)).await.map_err(|error| failed(describe(&error)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => failed(format!("the response is larger than {MAX_RESPONSE} bytes")),
            false => failed(describe(&*error)),
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }

    fn connect(&self, webhooks: &WebhookClient) -> Result<Client, String> {
        // Like other clients, trusts the system's certificate authorities if there are no others.
        let config = verified_client_config(self.authority.as_deref(), &webhooks.clock)?;
        let (store, resolver) = (webhooks.store.clone(), webhooks.resolver);
        let dialer = Dialer { store, resolver, service: self.service.clone() };
        let mut connector = HttpsConnector::from((dialer, config));
        connector.enforce_https();
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT).pool_max_idle_per_host(MAX_IDLE);
        Ok(builder.build(connector))
    }
}

/// Opens connections to the host and port of a URL, or to an endpoint of a service.
#[derive(Clone)]
struct Dialer {
    store: Arc<Store>,
    resolver: ServiceResolver,
    service: Option<ServicePort>,
}

impl tower::Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { store, resolver, service } = self.clone();
        Box::pin(async move {
            let stream = match service {
                Some(service) => {
                    let ServicePort { namespace, name, port } = service;
                    let addresses = resolver(&store, &namespace, &name, port).map_err(io::Error::other)?;
                    dial_any(&addresses).await?
                }
                None => {
                    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
                    let port = uri.port_u16().unwrap_or(443);
                    let lookup = tokio::net::lookup_host((host.as_str(), port)).await;
                    let addresses: Vec<_> = lookup
                        .map_err(|_| io::Error::other(format!("dial tcp: lookup {host}: no such host")))?
                        .collect();
                    dial_any(&addresses).await?
                }
            };
            // A review is one small message. Waiting for more data would only delay it.
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// Connects to the first address that accepts.
async fn dial_any(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("dial tcp: no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
                    _ => error.to_string(),
                };
                failure = io::Error::other(format!("dial tcp {address}: connect: {why}"));
            }
        }
    }
    Err(failure)
}

/// Returns the innermost cause of an error, in the wording of Go's client.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut at = Some(error);
    let mut innermost = error;
    while let Some(error) = at {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return describe_tls(tls);
        }
        innermost = error;
        // The source of an I/O error is the source of the inner error, not that error itself.
        let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        at = match carried {
            Some(carried) => Some(carried),
            None => error.source(),
        };
    }
    innermost.to_string()
}

fn describe_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(refusal)) => {
            format!("tls: failed to verify certificate: {}", refusal.0)
        }
        rustls::Error::InvalidCertificate(other) => format!("tls: failed to verify certificate: x509: {other}"),
        rustls::Error::InvalidMessage(_) => "tls: first record does not look like a TLS handshake".to_owned(),
        other => format!("tls: {other}"),
    }
}

/// Returns the error of a response with an unsuccessful code.
fn unsuccessful(code: StatusCode, body: &[u8]) -> String {
    const SHOWN: usize = 512;
    match code {
        StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
        _ => {
            let text: String = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]).trim().to_owned();
            let text = if text.is_empty() { code.canonical_reason().unwrap_or_default().to_owned() } else { text };
            format!("an error on the server ({text:?}) has prevented the request from succeeding")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_requested_as_by_kubernetes() {
        for (path, expect) in
            [("", "/"), ("/", "/"), ("//validate", "/validate"), ("a/./b/../c/", "/a/c"), ("/../x", "/x")]
        {
            assert_eq!(clean(path), expect, "{path:?}");
        }
        assert_eq!(with_clean_path("https://127.0.0.1:9443//failing"), "https://127.0.0.1:9443/failing");
        assert_eq!(with_clean_path("https://example.com"), "https://example.com/");
    }
}
