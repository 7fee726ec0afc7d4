//! An HTTP server, plain or by TLS, that its owner can stop and wait for.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustls::ServerConfig;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::BindAddress;

/// A client must send its request's head in this time, so that idle connections don't pile up.
const HEADER_DEADLINE: Duration = Duration::from_secs(30);
/// Answers under way get this long when the server stops.
const DRAIN: Duration = Duration::from_secs(2);
/// How many connections may be open at once: more than probes, scrapers and API servers have.
const CONNECTIONS: usize = 256;
/// How long a client may take for its handshake.
const GREETING: Duration = Duration::from_secs(10);
/// How long to wait when the process can't take connections (mostly: too many open files).
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A server that could not listen: which one, and what to do.
#[derive(Debug, Error)]
#[error("can't listen on {address} for {what}: {error}; {hint}", hint = hint(.error, .flag))]
pub struct BindError {
    what: &'static str,
    flag: &'static str,
    address: BindAddress,
    error: io::Error,
}

fn hint(error: &io::Error, flag: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("another process has the port: choose a free one with {flag}, or 0 for none")
        }
        io::ErrorKind::PermissionDenied => format!("choose a port from 1024 on with {flag}, or 0 for none"),
        _ => format!("choose another address with {flag}, or 0 for none"),
    }
}

/// How a server treats its connections.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    /// TLS with this configuration; plain HTTP without.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// How long a connection may wait for the head of its next request.
    pub(crate) idle: Duration,
    /// How long answers under way get when the server stops.
    pub(crate) drain: Duration,
    /// How many connections may be open. Others wait until one is closed.
    pub(crate) connections: usize,
}

impl Default for Manner {
    fn default() -> Self {
        Self { tls: None, idle: HEADER_DEADLINE, drain: DRAIN, connections: CONNECTIONS }
    }
}

/// A server that runs until it is shut down or dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens and serves; `None` when the address is disabled. `what` and `flag` tell an error whose address it was.
    ///
    /// # Errors
    /// [`BindError`] if the address is taken, not ours, or not permitted.
    pub async fn start(
        what: &'static str,
        flag: &'static str,
        address: &BindAddress,
        router: Router,
    ) -> Result<Option<Self>, BindError> {
        Self::start_as(what, flag, address, router, Manner::default()).await
    }

    /// [`Server::start`], in another manner.
    pub(crate) async fn start_as(
        what: &'static str,
        flag: &'static str,
        address: &BindAddress,
        router: Router,
        manner: Manner,
    ) -> Result<Option<Self>, BindError> {
        let listener = match listen(address).await {
            Ok(None) => return Ok(None),
            Ok(Some(listener)) => listener.local_addr().map(|address| (listener, address)),
            Err(error) => Err(error),
        };
        let (listener, address) =
            listener.map_err(|error| BindError { what, flag, address: address.clone(), error })?;
        tracing::info!(%address, "serving {what}");
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, router, manner, stop.clone()));
        Ok(Some(Self { address, stop, task }))
    }

    /// Where it listens; the port is the one given by the system if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, and returns when those that were open are done, or cut after two seconds.
    pub async fn shutdown(mut self) {
        self.stop().await;
    }

    /// [`Server::shutdown`] of one that is part of something.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "a server ended badly");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(address: &BindAddress) -> io::Result<Option<TcpListener>> {
    let listener = match address {
        BindAddress::Disabled => return Ok(None),
        BindAddress::Host(host, port) => TcpListener::bind((host.as_str(), *port)).await?,
        BindAddress::AllInterfaces(port) => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).await {
            // Linux serves IPv4 on this socket too, where IPv6 exists.
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).await?
            }
            result => result?,
        },
    };
    Ok(Some(listener))
}

/// Connections live in the set, so they end with this task, however it ends.
async fn serve(listener: TcpListener, router: Router, manner: Manner, stop: CancellationToken) {
    let drain = manner.drain;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < manner.connections => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, router.clone(), manner.clone(), stop.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "can't accept a connection");
                    sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(listener);
    let drained = timeout(drain, async { while connections.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        connections.shutdown().await;
    }
}

async fn connection(stream: TcpStream, router: Router, manner: Manner, stop: CancellationToken) {
    // Answers are small and awaited: without this each could wait for the client's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let Some(config) = manner.tls else { return exchange(stream, router, manner.idle, stop).await };
    let greeting = timeout(GREETING, TlsAcceptor::from(config).accept(stream));
    let greeted = tokio::select! {
        greeted = greeting => greeted,
        () = stop.cancelled() => return,
    };
    match greeted {
        Ok(Ok(stream)) => exchange(stream, router, manner.idle, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    router: Router,
    idle: Duration,
    stop: CancellationToken,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(idle);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let result: Result<(), hyper::Error> = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::oneshot,
    };

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

    async fn start(router: Router) -> Server {
        let address = "127.0.0.1:0".parse().unwrap();
        Server::start("tests", "--address", &address, router).await.unwrap().expect("it is enabled")
    }

    async fn connect(server: &Server) -> TcpStream {
        TcpStream::connect(server.address()).await.unwrap()
    }

    #[tokio::test]
    async fn zero_is_no_server() {
        let server = Server::start("tests", "--address", &BindAddress::Disabled, Router::new()).await.unwrap();
        assert!(server.is_none());
    }

    #[tokio::test]
    async fn a_taken_port_is_told_with_flag_and_remedy() {
        let first = start(Router::new()).await;
        let taken = first.address().to_string().parse().unwrap();
        let error = Server::start("metrics", "--metrics-bind-address", &taken, Router::new()).await.unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with(&format!("can't listen on {} for metrics: ", first.address())), "{error}");
        assert!(error.ends_with("choose a free one with --metrics-bind-address, or 0 for none"), "{error}");
    }

    #[tokio::test]
    async fn all_interfaces_include_ipv4_loopback() {
        let address = BindAddress::AllInterfaces(0);
        let server = Server::start("tests", "--address", &address, Router::new()).await.unwrap().unwrap();
        TcpStream::connect((Ipv4Addr::LOCALHOST, server.address().port())).await.unwrap();
        server.shutdown().await;
    }

    #[tokio::test]
    async fn shutdown_lets_an_answer_finish_and_closes_idle_connections() {
        let (arrived, mut waiting) = tokio::sync::mpsc::channel(1);
        let (release, released) = oneshot::channel::<()>();
        let released = std::sync::Arc::new(tokio::sync::Mutex::new(Some(released)));
        let slow = async move || {
            arrived.send(()).await.unwrap();
            released.lock().await.take().unwrap().await.unwrap();
            "done"
        };
        let server = start(Router::new().route("/", get(slow))).await;
        let mut idle = connect(&server).await;
        let mut busy = connect(&server).await;
        busy.write_all(REQUEST).await.unwrap();
        waiting.recv().await.unwrap();

        let address = server.address();
        let shutdown = tokio::spawn(server.shutdown());
        assert_eq!(idle.read(&mut [0; 16]).await.unwrap(), 0, "an idle connection is closed");
        release.send(()).unwrap();
        let mut answer = String::new();
        busy.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("done"), "{answer}");
        shutdown.await.unwrap();
        TcpStream::connect(address).await.expect_err("nobody listens any more");
    }

    #[tokio::test]
    async fn who_comes_when_all_connections_are_taken_waits() {
        let address = "127.0.0.1:0".parse().unwrap();
        let manner = Manner { connections: 1, ..Manner::default() };
        let router = Router::new().route("/", get(async || "done"));
        let server = Server::start_as("tests", "--address", &address, router, manner).await.unwrap().unwrap();
        let (mut first, mut second) = (connect(&server).await, connect(&server).await);
        for stream in [&mut second, &mut first] {
            stream.write_all(REQUEST).await.unwrap();
        }
        let (mut answer, mut later) = ([0; 512], [0; 512]);
        let length = first.read(&mut answer).await.unwrap();
        assert!(answer[..length].ends_with(b"done"));
        let early = timeout(Duration::from_millis(100), second.read(&mut later)).await;
        assert!(early.is_err(), "the place is taken");
        drop(first);
        let length = second.read(&mut later).await.unwrap();
        assert!(later[..length].ends_with(b"done"));
        server.shutdown().await;
    }

    #[tokio::test]
    async fn dropping_ends_open_connections() {
        let server = start(Router::new().route("/", get(std::future::pending::<()>))).await;
        let mut client = connect(&server).await;
        client.write_all(REQUEST).await.unwrap();
        drop(server);
        let end = client.read(&mut [0; 16]).await;
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    }
}
