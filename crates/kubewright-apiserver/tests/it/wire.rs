//! Requests on a connection of a listener, for what HTTP clients don't send.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kubewright_apiserver::Listener;
use rustls::{
    ClientConfig, RootCertStore, SignatureScheme,
    client::ResolvesClientCert,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
    sign::CertifiedKey,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The deadline of every step.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A connection of a client, with TLS.
pub(crate) type Connection = TlsStream<TcpStream>;

/// Notes the authorities that a server asks clients for, and offers no certificate.
#[derive(Debug, Default)]
struct Authorities(Mutex<Vec<Vec<u8>>>);

impl ResolvesClientCert for Authorities {
    fn resolve(&self, authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.0.lock().unwrap() = authorities.iter().map(|name| name.to_vec()).collect();
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Returns the names of the authorities that a listener asks clients for.
pub(crate) async fn authorities(listener: &Listener) -> Vec<Vec<u8>> {
    let resolver = Arc::new(Authorities::default());
    drop(connect_by(listener, "h2", resolver.clone()).await);
    std::mem::take(&mut *resolver.0.lock().unwrap())
}

/// Opens a connection with this application protocol: `http/1.1` or `h2`.
pub(crate) async fn connect_with(listener: &Listener, protocol: &str) -> Connection {
    connect_by(listener, protocol, Arc::new(Authorities::default())).await
}

async fn connect_by(listener: &Listener, protocol: &str, resolver: Arc<Authorities>) -> Connection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(listener.authority().as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(resolver);
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(listener.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    timeout(DEADLINE, TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap().unwrap()
}

/// Opens a connection for HTTP/1.1.
pub(crate) async fn connect(listener: &Listener) -> Connection {
    connect_with(listener, "http/1.1").await
}

/// Sends a request without a body as the administrator, and reads the head of the response.
pub(crate) async fn request(connection: &mut Connection, listener: &Listener, line: &str, headers: &[&str]) -> String {
    let authorization = format!("Authorization: Bearer {}", listener.token());
    let headers: Vec<_> = [authorization.as_str()].into_iter().chain(headers.iter().copied()).collect();
    anonymous_request(connection, line, &headers).await
}

/// Sends a request without a body and without credentials, and reads the head of the response.
pub(crate) async fn anonymous_request(connection: &mut Connection, line: &str, headers: &[&str]) -> String {
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n", headers.join("\r\n"));
    connection.write_all(request.as_bytes()).await.unwrap();
    head(connection).await
}

/// Reads the head of a response, byte by byte, so that nothing behind it is lost.
pub(crate) async fn head(connection: &mut Connection) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(DEADLINE, connection.read_u8()).await.unwrap().unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

/// Reads the rest until the server closes the connection.
pub(crate) async fn rest(connection: &mut Connection) -> Vec<u8> {
    let mut rest = Vec::new();
    // The server need not announce the end of TLS.
    let _ = timeout(DEADLINE, connection.read_to_end(&mut rest)).await.expect("the server closes the connection");
    rest
}
