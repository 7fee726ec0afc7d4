//! A client that takes as little of the processors as possible: prepared bodies, connections of its own, and responses
//! that nobody parses.
//!
//! What a server and its peer need is then most of what is measured; kube's typed client takes as long as the embedded
//! API server.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{
        http1::{self, SendRequest},
        http2,
    },
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::{Config, client::ConfigExt};
use kubewright_apimachinery::clock::SharedClock;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The number of concurrent callers, each with a connection.
const CALLERS: usize = 32;

/// An API server, and how to be authenticated by it.
#[derive(Clone)]
pub(crate) struct Target {
    address: SocketAddr,
    connector: TlsConnector,
    /// Negotiates HTTP/2.
    multiplexing: TlsConnector,
    token: Option<HeaderValue>,
}

impl Target {
    /// Uses the address, the authorities and the client certificate of a configuration whose server is named by an IP
    /// address, and a bearer token.
    pub(crate) fn new(config: &Config, token: Option<&str>) -> Result<Self> {
        let (host, port) = (config.cluster_url.host(), config.cluster_url.port_u16());
        let address = format!("{}:{}", host.unwrap_or_default(), port.unwrap_or(443));
        let address = address.parse().with_context(|| format!("{address} is no IP address with a port"))?;
        let mut tls = config.rustls_client_config().context("configure TLS")?;
        // HTTP/1.1, as kube's client here.
        tls.alpn_protocols.clear();
        let connector = TlsConnector::from(Arc::new(tls.clone()));
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let multiplexing = TlsConnector::from(Arc::new(tls));
        let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        Ok(Self { address, connector, multiplexing, token: token.transpose()? })
    }

    async fn stream(&self, connector: &TlsConnector) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await.context("connect")?;
        stream.set_nodelay(true).context("set an option of a connection")?;
        connector.connect(self.address.ip().into(), stream).await.context("agree on TLS")
    }

    async fn connect(&self) -> Result<Connection> {
        let (sender, connection) =
            http1::handshake(TokioIo::new(self.stream(&self.connector).await?)).await.context("agree on HTTP")?;
        // An error ends the requests, which report it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Connection { sender, token: self.token.clone() })
    }

    /// Sends a request on a connection of its own, reads the response to its end, and returns its length in bytes.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<usize> {
        self.connect().await?.send(method, path, body).await
    }

    /// Sends so many requests from concurrent callers, and returns how many of them were answered per second.
    pub(crate) async fn rate(
        &self,
        count: usize,
        clock: &SharedClock,
        request: impl Fn(usize) -> (Method, String, Bytes) + Clone + Send + 'static,
    ) -> Result<f64> {
        let mut connections = Vec::with_capacity(CALLERS);
        while connections.len() < CALLERS {
            connections.push(self.connect().await?);
        }
        let begun = clock.monotonic();
        let mut callers = JoinSet::new();
        for (caller, mut connection) in connections.into_iter().enumerate() {
            let request = request.clone();
            callers.spawn(async move {
                for number in (caller..count).step_by(CALLERS) {
                    let (method, path, body) = request(number);
                    connection.send(method, &path, body).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller.context("a caller panicked")??;
        }
        Ok(count as f64 / clock.monotonic().saturating_sub(begun).as_secs_f64())
    }

    /// Starts a watch, and returns once its response has begun.
    pub(crate) async fn watch(&self, path: &str) -> Result<Watch> {
        let mut stream = self.stream(&self.connector).await?;
        let mut request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n", self.address).into_bytes();
        if let Some(token) = &self.token {
            request.extend([b"Authorization: ", token.as_bytes(), b"\r\n"].concat());
        }
        request.extend(b"\r\n");
        stream.write_all(&request).await.context("send a request")?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = stream.read_u8().await.context("read the head of a response")?;
            head.push(byte);
        }
        let head = String::from_utf8_lossy(&head);
        ensure!(head.starts_with("HTTP/1.1 200 "), "a watch was answered with {head}");
        ensure!(head.to_ascii_lowercase().contains("transfer-encoding: chunked"), "a watch has no chunks: {head}");
        Ok(Watch::Connection { stream: Box::new(stream), tail: [0; 3] })
    }

    /// Starts so many watches on one connection by HTTP/2, and returns once their responses have begun.
    pub(crate) async fn watches(&self, path: &str, count: usize) -> Result<Vec<Watch>> {
        let stream = TokioIo::new(self.stream(&self.multiplexing).await?);
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), stream).await.context("agree on HTTP/2")?;
        // An error ends the watches, which report it.
        tokio::spawn(async move { drop(connection.await) });
        let mut watches = Vec::with_capacity(count);
        for _ in 0..count {
            let mut request = Request::builder().uri(format!("https://{}{path}", self.address));
            if let Some(token) = &self.token {
                request = request.header(AUTHORIZATION, token);
            }
            let request = request.body(Full::<Bytes>::default()).context("make a request")?;
            let response = sender.send_request(request).await.context("send a request")?;
            ensure!(response.status().is_success(), "a watch was answered with {}", response.status());
            watches.push(Watch::Stream(response.into_body()));
        }
        Ok(watches)
    }
}

/// A connection for one request after the other.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    token: Option<HeaderValue>,
}

impl Connection {
    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<usize> {
        self.sender.ready().await.context("the connection has ended")?;
        let mut request = Request::builder().method(method).uri(path).header(HOST, "127.0.0.1");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::from(body));
        let response = self.sender.send_request(request.context("make a request")?).await.context("send a request")?;
        let (status, mut body) = (response.status(), response.into_body());
        if !status.is_success() {
            let text = body.collect().await.context("read a response")?.to_bytes();
            anyhow::bail!("{path} was answered with {status}: {}", String::from_utf8_lossy(&text));
        }
        skip(&mut body).await
    }
}

/// Reads a body to its end, and returns its length.
async fn skip(body: &mut Incoming) -> Result<usize> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame.context("read a response")?.data_ref().map_or(0, Bytes::len);
    }
    Ok(length)
}

/// The events of a watch, which are only counted.
pub(crate) enum Watch {
    /// A watch on a connection of its own, by HTTP/1.1.
    Connection {
        stream: Box<TlsStream<TcpStream>>,
        /// The last bytes that were read.
        tail: [u8; 3],
    },
    /// A stream of a connection by HTTP/2.
    Stream(Incoming),
}

impl Watch {
    /// Waits until an event has arrived as a whole: its newline, and the end of the chunk if there are any.
    pub(crate) async fn event(&mut self) -> Result<()> {
        match self {
            Self::Connection { stream, tail } => {
                let mut buffer = [0; 4096];
                loop {
                    let count = stream.read(&mut buffer).await.context("read a watch")?;
                    ensure!(count > 0, "a watch has ended");
                    let read = &buffer[..count];
                    for byte in &read[count.saturating_sub(tail.len())..] {
                        tail.rotate_left(1);
                        tail[2] = *byte;
                    }
                    if *tail == *b"\n\r\n" {
                        return Ok(());
                    }
                }
            }
            Self::Stream(body) => loop {
                let frame = body.frame().await.context("a watch has ended")?.context("read a watch")?;
                if frame.data_ref().is_some_and(|data| data.ends_with(b"\n")) {
                    return Ok(());
                }
            },
        }
    }
}
