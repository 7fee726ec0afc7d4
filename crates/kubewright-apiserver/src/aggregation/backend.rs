//! Requests to other API servers.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::{
    ClientConfig,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use super::{
    Aggregation,
    services::{ApiService, Remote},
};
use crate::{
    auth::UserInfo,
    certificate_verifier::CertificateVerifier,
    fields::text,
    peer::{PeerVerifier, ServerTime},
    proxy::{self, Connection, ProxyRequest},
    response::{self, Response},
    storage::Key,
    webhook_client::describe,
};

/// The time limit of connecting, and of each request for a document.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a document in bytes.
const MAX_DOCUMENT: usize = 16 << 20;

const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";
/// The characters that a key of `extra` has in a header without being encoded: those of tokens, except for `%`.
const TOKEN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

impl Aggregation {
    /// Sends a request of an authorized user to the server of an APIService. Errors are in plain text, as in
    /// Kubernetes.
    pub(crate) async fn forward(&self, service: &ApiService, user: &UserInfo, parts: Parts, body: Bytes) -> Response {
        let Some(remote) = service.remote.as_ref().filter(|_| service.is_available) else {
            return unavailable("service unavailable");
        };
        match self.send(remote, user, parts, body).await {
            Ok(response) => response,
            Err(why) => unavailable(&why),
        }
    }

    async fn send(&self, remote: &Remote, user: &UserInfo, mut parts: Parts, body: Bytes) -> Result<Response, String> {
        identify(&mut parts.headers, user);
        if let Ok(host) = HeaderValue::try_from(format!("{}:{}", remote.host(), remote.port)) {
            parts.headers.insert(header::HOST, host);
        }
        let target = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let stream = timeout(TIMEOUT, self.connect(remote)).await;
        let stream = stream.map_err(|_| "net/http: TLS handshake timeout".to_owned())??;
        let request = ProxyRequest { parts, body, target, prefix: String::new() };
        proxy::send(request, stream).await.map_err(|status| status.message)
    }

    /// Returns the response to a GET by this server itself.
    pub(super) async fn get(
        &self,
        remote: &Remote,
        path: &str,
        accept: &str,
    ) -> Result<(StatusCode, HeaderMap, Bytes), String> {
        let request = Request::get(path).header(header::ACCEPT, accept).body(()).map_err(|error| error.to_string())?;
        let user = UserInfo::new("system:kube-aggregator", ["system:masters"]);
        let exchange = async {
            let response = self.send(remote, &user, request.into_parts().0, Bytes::new()).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_DOCUMENT).collect().await.map_err(|error| error.to_string())?;
            Ok((parts.status, parts.headers, body.to_bytes()))
        };
        timeout(TIMEOUT, exchange).await.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
    }

    /// Connects to any address of a server.
    async fn connect(&self, remote: &Remote) -> Result<Box<dyn Connection>, String> {
        let config = self.config(remote)?;
        let name = ServerName::try_from(remote.host()).map_err(|error| error.to_string())?;
        let mut failure = "dial tcp: no address".to_owned();
        for address in self.addresses(remote).await? {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // A watch has small messages.
                    stream.set_nodelay(true).map_err(|error| error.to_string())?;
                    match TlsConnector::from(config.clone()).connect(name.clone(), stream).await {
                        Ok(stream) => return Ok(Box::new(stream)),
                        Err(error) => failure = describe(&error),
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    failure = format!("dial tcp {address}: connect: connection refused");
                }
                Err(error) => failure = format!("dial tcp {address}: {error}"),
            }
        }
        Err(failure)
    }

    /// Returns the addresses of a server: the ready endpoints of its Service, or those of an external name.
    async fn addresses(&self, remote: &Remote) -> Result<Vec<SocketAddr>, String> {
        let Remote { namespace, service, port, .. } = remote;
        let Some(host) = self.external_name(remote) else {
            return (self.client.resolver)(&self.client.store, namespace, service, *port);
        };
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        Ok(found.map_err(|_| format!("dial tcp: lookup {host}: no such host"))?.collect())
    }

    /// Returns the host that an ExternalName service names.
    pub(super) fn external_name(&self, remote: &Remote) -> Option<String> {
        let key = Key::new(&remote.namespace, &remote.service);
        let service = self.client.store.get("/services", &key)?.value();
        (text(&service, "/spec/type") == "ExternalName").then(|| text(&service, "/spec/externalName").to_owned())
    }

    fn config(&self, remote: &Remote) -> Result<Arc<ClientConfig>, String> {
        let mut present = remote.config.lock();
        if let Some(config) = &*present {
            return Ok(config.clone());
        }
        let provider = ring::default_provider();
        let algorithms = provider.signature_verification_algorithms;
        let verifier = if remote.insecure {
            PeerVerifier::any(algorithms)
        } else {
            let trusted = match &remote.authority {
                Some(bundle) => CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect(),
                None => rustls_native_certs::load_native_certs().certs,
            };
            let servers = CertificateVerifier::new(trusted, algorithms);
            if servers.is_empty() && remote.authority.is_some() {
                return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
            }
            PeerVerifier::servers(servers, algorithms)
        };
        let (chain, key) = self.front_proxy.client().map_err(|error| error.to_string())?;
        let time = Arc::new(ServerTime::new(self.client.clock.clone()));
        let config = ClientConfig::builder_with_details(Arc::new(provider), time)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(chain, key)
            .map_err(|error| error.to_string())?;
        Ok(present.insert(Arc::new(config)).clone())
    }
}

impl Remote {
    /// Returns the name in the certificate of the server.
    pub(super) fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }
}

/// Names the user in the headers of a request, and removes what the client may have sent in their place.
fn identify(headers: &mut HeaderMap, user: &UserInfo) {
    let of_proxy = |name: &&HeaderName| {
        let name = name.as_str();
        matches!(name, USER | UID | GROUP) || name.starts_with(EXTRA)
    };
    for name in headers.keys().filter(of_proxy).cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    let mut add = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    };
    add(USER, &user.name);
    if !user.uid.is_empty() {
        add(UID, &user.uid);
    }
    for group in &user.groups {
        add(GROUP, group);
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA}{}", utf8_percent_encode(&key.to_lowercase(), TOKEN));
        for value in values {
            add(&name, value);
        }
    }
}

/// Returns 503 in plain text.
fn unavailable(why: &str) -> Response {
    let mut response = response::plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_replaces_what_the_client_claims() {
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "x-remote-group", "x-remote-extra-scopes", "x-remote-uid", "accept"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("mine"));
        }
        let mut user = UserInfo::new("jane", ["a", "b"]);
        user.extra.insert("example.com/Some key".into(), vec!["1".into(), "2".into()]);
        identify(&mut headers, &user);
        let all = |name: &str| headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(all("x-remote-user"), ["jane"]);
        assert_eq!(all("x-remote-group"), ["a", "b"]);
        assert_eq!(all("x-remote-extra-example.com%2Fsome%20key"), ["1", "2"]);
        assert_eq!((all("x-remote-extra-scopes"), all("x-remote-uid"), all("accept")), (vec![], vec![], vec!["mine"]));
    }
}
