//! A TLS server, and proxies that connect every name to it.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

type Notes = Arc<Mutex<Vec<String>>>;

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("its address");
    (listener, address)
}

/// A server that responds to every request with the version of an API server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: CertificateDer<'static>,
    tokens: Notes,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let names = vec!["cluster.test".into(), "127.0.0.1".into()];
        let certificate =
            rcgen::CertificateParams::new(names).expect("names").self_signed(&key).expect("a certificate");
        let certificate = certificate.der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("a pair");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (listener, address) = listen().await;
        let tokens = Notes::default();
        let noted = tokens.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, noted) = (acceptor.clone(), noted.clone());
                tokio::spawn(async move { answer(acceptor.accept(stream).await?, &noted).await });
            }
        });
        Self { address, certificate, tokens, task }
    }

    /// Returns the credentials of the requests.
    pub(crate) fn tokens(&self) -> Vec<String> {
        self.tokens.lock().expect("a lock").clone()
    }
}

async fn answer(stream: tokio_rustls::server::TlsStream<TcpStream>, tokens: &Notes) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let head = head(&mut stream).await?;
    let token = head.iter().find_map(|line| line.strip_prefix("authorization: "));
    tokens.lock().expect("a lock").extend(token.map(str::to_owned));
    let body = r#"{"major":"1","minor":"36","gitVersion":"v1.36.3","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads the lines of a request's head.
async fn head(stream: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 || line.trim().is_empty() {
            return Ok(lines);
        }
        lines.push(line.trim().to_owned());
    }
}

/// A proxy that stops when it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    asked: Notes,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Starts an HTTP proxy that opens tunnels, for any client or only for one user.
    pub(crate) async fn http(to: SocketAddr, user: Option<(&str, &str)>) -> Self {
        let (listener, address) = listen().await;
        let asked = Notes::default();
        let noted = asked.clone();
        let wanted = user.map(|(user, password)| {
            format!("proxy-authorization: basic {}", STANDARD.encode(format!("{user}:{password}")))
        });
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (noted, wanted) = (noted.clone(), wanted.clone());
                tokio::spawn(tunnel(stream, to, wanted, noted));
            }
        });
        Self { address, asked, task }
    }

    /// Starts a SOCKS 5 proxy (RFC 1928), for any client or only for one user (RFC 1929).
    pub(crate) async fn socks(to: SocketAddr, user: Option<(&str, &str)>) -> Self {
        let (listener, address) = listen().await;
        let asked = Notes::default();
        let noted = asked.clone();
        let wanted = user.map(|(user, password)| (user.to_owned(), password.to_owned()));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (noted, wanted) = (noted.clone(), wanted.clone());
                tokio::spawn(socks(stream, to, wanted, noted));
            }
        });
        Self { address, asked, task }
    }

    /// Returns the requested destinations.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("a lock").clone()
    }
}

async fn tunnel(stream: TcpStream, to: SocketAddr, wanted: Option<String>, asked: Notes) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let head = head(&mut stream).await?;
    let target = head.first().and_then(|line| line.strip_prefix("CONNECT ")?.strip_suffix(" HTTP/1.1"));
    let Some(target) = target else { return stream.write_all(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n").await };
    let is = |line: &String, wanted: &String| {
        let (name, value) = line.split_once(": Basic ").unwrap_or_default();
        format!("{}: basic {value}", name.to_ascii_lowercase()) == *wanted
    };
    if wanted.is_some_and(|wanted| !head.iter().any(|line| is(line, &wanted))) {
        return stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    }
    asked.lock().expect("a lock").push(target.to_owned());
    let mut upstream = TcpStream::connect(to).await?;
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    copy_bidirectional(&mut stream, &mut upstream).await.map(drop)
}

async fn socks(
    mut stream: TcpStream,
    to: SocketAddr,
    wanted: Option<(String, String)>,
    asked: Notes,
) -> io::Result<()> {
    let (_version, methods) = (stream.read_u8().await?, stream.read_u8().await?);
    stream.read_exact(&mut vec![0; methods.into()]).await?;
    if let Some(wanted) = wanted {
        stream.write_all(&[5, 2]).await?;
        stream.read_u8().await?;
        let given = (text(&mut stream).await?, text(&mut stream).await?);
        stream.write_all(&[1, u8::from(given != wanted)]).await?;
    } else {
        stream.write_all(&[5, 0]).await?;
    }
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    assert_eq!(request, [5, 1, 0, 3], "connect to a name");
    let (name, port) = (text(&mut stream).await?, stream.read_u16().await?);
    asked.lock().expect("a lock").push(format!("{name}:{port}"));
    let mut upstream = TcpStream::connect(to).await?;
    stream.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0]).await?;
    copy_bidirectional(&mut stream, &mut upstream).await.map(drop)
}

/// Reads a length-prefixed string.
async fn text(stream: &mut TcpStream) -> io::Result<String> {
    let length = stream.read_u8().await?;
    let mut text = vec![0; length.into()];
    stream.read_exact(&mut text).await?;
    String::from_utf8(text).map_err(io::Error::other)
}
