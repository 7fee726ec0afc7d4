//! Connections to a cluster's listener, for protocols other than HTTP.

use std::{net::SocketAddr, sync::Arc};

use kubewright_cluster::{Cluster, Endpoint};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A connection with TLS.
pub(crate) type Connection = TlsStream<TcpStream>;

/// The headers of a WebSocket handshake.
pub(crate) const WEBSOCKET: [&str; 4] = [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
];

pub(crate) async fn listen(cluster: &Cluster) -> Endpoint {
    cluster.listen("127.0.0.1:0".parse().expect("an address")).await.expect("a free port")
}

/// Sends a request without a body with a token, and returns the connection and the head of the response.
pub(crate) async fn request(endpoint: &Endpoint, token: &str, line: &str, headers: &[&str]) -> (Connection, String) {
    let authorization = format!("Authorization: Bearer {token}");
    let headers: Vec<_> = [authorization.as_str()].iter().chain(headers).copied().collect();
    request_to(endpoint.address(), endpoint.authority(), line, &headers).await
}

/// Sends a request without a body to a server whose certificate an authority has signed, and returns the connection and
/// the head of the response.
pub(crate) async fn request_to(
    address: SocketAddr,
    authority: &str,
    line: &str,
    headers: &[&str],
) -> (Connection, String) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).expect("PEM")).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("supported versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.expect("it listens");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS");
    let headers = headers.join("\r\n");
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a response"));
    }
    (stream, String::from_utf8_lossy(&head).into_owned())
}
