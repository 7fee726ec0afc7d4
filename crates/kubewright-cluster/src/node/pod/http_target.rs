//! The requests of HTTP probes and hooks.

use std::{error::Error, io, net::SocketAddr};

use bytes::Bytes;
use http::{Request, Uri, header::LOCATION};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use kubewright_apiserver::unverified_client_config;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};
use tokio_rustls::TlsConnector;

/// The status codes whose location is followed.
const REDIRECTING: [u16; 5] = [301, 302, 303, 307, 308];
/// The maximum length of a body in messages, as in the kubelet.
const BODY: usize = 10 << 10;

/// Where a request is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// The path and query.
    pub(super) path: String,
}

/// The response to an HTTP probe or hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeResponse {
    pub(super) code: u16,
    /// Where a redirect leads to.
    pub(super) location: Option<String>,
    /// The beginning of the body: 10 KiB at most.
    pub(super) body: String,
}

impl Target {
    /// Sends a request. The error is Go's text, without the URL.
    pub(super) async fn get(&self, get: &HTTPGetAction, agent: &str) -> Result<ProbeResponse, String> {
        let place = self.place();
        let request = request(get, &place, &self.path, agent).map_err(|error| error.to_string())?;
        let stream = connect(&place).await?;
        if !self.tls {
            return send(stream, request).await;
        }
        let name = ServerName::from(stream.peer_addr().map_err(message)?.ip());
        let config = unverified_client_config().map_err(|error| error.to_string())?;
        send(TlsConnector::from(config).connect(name, stream).await.map_err(message)?, request).await
    }

    pub(super) fn url(&self) -> String {
        format!("{}://{}{}", if self.tls { "https" } else { "http" }, self.place(), self.path)
    }

    fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns the target of a redirect in a response of this target; `None` if the location is malformed.
    pub(super) fn resolve(&self, location: &str) -> Option<Self> {
        let location = match location.strip_prefix("//") {
            Some(rest) => format!("{}://{rest}", if self.tls { "https" } else { "http" }),
            None => location.to_owned(),
        };
        if location.starts_with("http://") || location.starts_with("https://") {
            let uri = location.parse::<Uri>().ok()?;
            let tls = uri.scheme_str() == Some("https");
            let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            return Some(Self { tls, host: uri.host()?.to_owned(), port, path: path.to_owned() });
        }
        let path = if location.starts_with('/') {
            location
        } else {
            let own = self.path.split('?').next().unwrap_or_default();
            let (folder, _) = own.rsplit_once('/')?;
            format!("{folder}/{location}")
        };
        Some(Self { path, ..self.clone() })
    }
}

/// Connects to the first address of a host. The error messages are Go's, as users know them from the kubelet.
pub(super) async fn connect(place: &str) -> Result<TcpStream, String> {
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

/// Sends a request on a new connection.
async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<ProbeResponse, String> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(message)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(message)?;
        let code = answer.status().as_u16();
        let location = answer.headers().get(LOCATION).filter(|_| REDIRECTING.contains(&code));
        let location = location.and_then(|location| location.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        let mut rest = answer.into_body();
        // What fails after the headers is ignored.
        while let Some(Ok(frame)) = rest.frame().await
            && body.len() < BODY
        {
            body.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        body.truncate(BODY);
        Ok(ProbeResponse { code, location, body: String::from_utf8_lossy(&body).into_owned() })
    };
    tokio::pin!(exchange, connection);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
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

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn locations_are_relative_to_the_request() {
        let target = Target { tls: false, host: "10.0.0.1".into(), port: 8080, path: "/a/redirect?loc=x".into() };
        let check = |location: &str, expect: &str| {
            assert_eq!(target.resolve(location).map(|next| next.url()).as_deref(), Some(expect), "{location}");
        };
        check("/healthz?full", "http://10.0.0.1:8080/healthz?full");
        check("healthz", "http://10.0.0.1:8080/a/healthz");
        check("//other/x", "http://other:80/x");
        check("http://0.0.0.0/", "http://0.0.0.0:80/");
        check("https://0.0.0.0:8443", "https://0.0.0.0:8443/");
        assert_eq!(target.resolve("http://a b/"), None);
    }
}
