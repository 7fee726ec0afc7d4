//! An HTTP server, with or without TLS, that its owner can stop and wait for.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
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
use tower::ServiceExt;

use super::{
    BindAddress,
    idle_connections::{ConnectionState, IdleConnections},
    local::AcceptedOn,
};

/// The timeout for the head of a connection's first request, and usually of the next ones, so that idle connections
/// don't accumulate. controller-runtime's servers wait for 32 s.
const HEADER_DEADLINE: Duration = Duration::from_secs(30);
/// The time limit for requests in flight when the server stops.
const DRAIN: Duration = Duration::from_secs(2);
/// The maximum number of open connections: more than the kubelet, scrapers and API servers need.
const CONNECTIONS: usize = 256;
/// The time in which a connection that makes room for another sends the rest of its last response.
const LAST_RESPONSE: Duration = Duration::from_secs(1);
/// The timeout of the TLS handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// The delay after a connection can't be accepted, usually because too many files are open.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The error of a server that can't listen on its address.
#[derive(Debug, Error)]
#[error("can't serve {what} on {address}: {error}; {hint}", hint = hint(.error, .flag))]
pub struct BindError {
    what: &'static str,
    flag: &'static str,
    address: BindAddress,
    error: io::Error,
}

fn hint(error: &io::Error, flag: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("another process uses the port: choose another with {flag}, or 0 for no server")
        }
        io::ErrorKind::PermissionDenied => format!("choose a port above 1023 with {flag}, or 0 for no server"),
        _ => format!("choose another address with {flag}, or 0 for no server"),
    }
}

/// Limits of a server's connections.
#[derive(Clone, Debug)]
pub(crate) struct ServerOptions {
    /// The TLS configuration; `None` for plain HTTP.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// The timeout for the head of a connection's next request.
    pub(crate) idle: Duration,
    /// The time limit for requests in flight when the server stops.
    pub(crate) drain: Duration,
    /// The maximum number of open connections. Then the one that has waited longest for a request makes room for a
    /// further client, which has to wait if requests of all are being answered.
    pub(crate) connections: usize,
}

impl Default for ServerOptions {
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
    /// Starts a server; `None` if the address is disabled. Errors contain `what` is served and the `flag` that sets the
    /// address.
    ///
    /// # Errors
    /// [`BindError`] if the address is in use, not one of this machine, or not permitted.
    pub async fn start(
        what: &'static str,
        flag: &'static str,
        address: &BindAddress,
        router: Router,
    ) -> Result<Option<Self>, BindError> {
        Self::start_as(what, flag, address, router, ServerOptions::default()).await
    }

    /// Like [`Server::start`], with other limits or with TLS.
    pub(crate) async fn start_as(
        what: &'static str,
        flag: &'static str,
        address: &BindAddress,
        router: Router,
        options: ServerOptions,
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
        let task = tokio::spawn(serve(listener, router, options, stop.clone()));
        Ok(Some(Self { address, stop, task }))
    }

    /// Returns the address that the server listens on, with the actual port if the system chose it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections, and returns when the open ones have ended. Connections that take longer than two
    /// seconds are closed.
    pub async fn shutdown(mut self) {
        self.stop().await;
    }

    /// [`Server::shutdown`] without consuming the server.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the task of a server failed");
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
            // With IPv6, Linux accepts IPv4 connections on this socket too.
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).await?
            }
            result => result?,
        },
    };
    Ok(Some(listener))
}

/// Accepts connections. Their tasks belong to a set that this task owns, so they end with it.
async fn serve(listener: TcpListener, router: Router, options: ServerOptions, stop: CancellationToken) {
    let drain = options.drain;
    let idle = Arc::new(IdleConnections::default());
    // The next connection, and whether another one has been closed for it.
    let (mut next, mut has_room) = (None, false);
    let mut connections = JoinSet::new();
    loop {
        if connections.len() < options.connections
            && let Some(stream) = next.take()
        {
            let state = Arc::new(ConnectionState::new(idle.clone()));
            connections.spawn(connection(stream, router.clone(), options.clone(), state, stop.clone()));
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => has_room = false,
            () = idle.close_oldest(), if next.is_some() && !has_room => has_room = true,
            accepted = listener.accept(), if next.is_none() => match accepted {
                Ok((stream, _)) => next = Some(stream),
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

async fn connection(
    stream: TcpStream,
    router: Router,
    options: ServerOptions,
    state: Arc<ConnectionState>,
    stop: CancellationToken,
) {
    // Responses are small. With Nagle's algorithm, each could wait for the client's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let Ok(accepted_on) = stream.local_addr() else { return };
    let serve = Requests { router, accepted_on: AcceptedOn(accepted_on), idle: options.idle, state: state.clone() };
    let Some(config) = options.tls else { return serve.on(stream, stop).await };
    let handshake = timeout(HANDSHAKE_DEADLINE, TlsAcceptor::from(config).accept(stream));
    let accepted = tokio::select! {
        biased;
        accepted = handshake => accepted,
        () = stop.cancelled() => return,
        () = state.closed() => return,
    };
    match accepted {
        Ok(Ok(stream)) => serve.on(stream, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

/// The requests of one connection.
struct Requests {
    router: Router,
    accepted_on: AcceptedOn,
    idle: Duration,
    state: Arc<ConnectionState>,
}

impl Requests {
    async fn on(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send, stop: CancellationToken) {
        let Self { router, accepted_on, idle, state } = self;
        let of_requests = state.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(accepted_on);
            let (router, state) = (router.clone(), of_requests.clone());
            state.begin_request();
            async move {
                let response = router.oneshot(request).await;
                state.end_request();
                response
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(idle);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let first = state.idle_number();
        let result: Result<(), hyper::Error> = tokio::select! {
            biased;
            result = connection.as_mut() => result,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = state.closed() => {
                connection.as_mut().graceful_shutdown();
                // A request may have arrived at this moment.
                tokio::select! {
                    biased;
                    result = connection => result,
                    () = unless(LAST_RESPONSE, || state.idle_number().is_none()) => Ok(()),
                }
            }
            () = unless(HEADER_DEADLINE, || state.idle_number() != first) => Ok(()),
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// Completes after a time, unless the condition holds then.
async fn unless(time: Duration, condition: impl Fn() -> bool) {
    sleep(time).await;
    if condition() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use jiff::Timestamp;
    use kubewright_apimachinery::clock::{Clock, VirtualClock};
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
    async fn a_disabled_address_starts_no_server() {
        let server = Server::start("tests", "--address", &BindAddress::Disabled, Router::new()).await.unwrap();
        assert!(server.is_none());
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_the_flag() {
        let first = start(Router::new()).await;
        let taken = first.address().to_string().parse().unwrap();
        let error = Server::start("metrics", "--metrics-bind-address", &taken, Router::new()).await.unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with(&format!("can't serve metrics on {}: ", first.address())), "{error}");
        assert!(error.ends_with("choose another with --metrics-bind-address, or 0 for no server"), "{error}");
    }

    #[tokio::test]
    async fn all_interfaces_include_ipv4_loopback() {
        let address = BindAddress::AllInterfaces(0);
        let server = Server::start("tests", "--address", &address, Router::new()).await.unwrap().unwrap();
        TcpStream::connect((Ipv4Addr::LOCALHOST, server.address().port())).await.unwrap();
        server.shutdown().await;
    }

    #[tokio::test]
    async fn shutdown_finishes_responses_and_closes_idle_connections() {
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
        TcpStream::connect(address).await.expect_err("the listener is closed");
    }

    /// Starts a server of one connection. A request for `/slow` takes until its sender is dropped.
    async fn start_for_one() -> (Server, oneshot::Sender<()>) {
        let (release, released) = oneshot::channel::<()>();
        let released = futures::FutureExt::shared(released);
        let slow = async move || {
            let _ = released.await;
            "done"
        };
        let router = Router::new().route("/", get(async || "done")).route("/slow", get(slow));
        let options = ServerOptions { connections: 1, idle: Duration::from_secs(300), ..ServerOptions::default() };
        let address = "127.0.0.1:0".parse().unwrap();
        let server = Server::start_as("tests", "--address", &address, router, options).await.unwrap().unwrap();
        (server, release)
    }

    /// Reads until a response is complete, or the connection is closed.
    async fn response(stream: &mut TcpStream) -> String {
        let (mut text, mut part) = (String::new(), [0; 512]);
        while !text.ends_with("done") {
            let length = timeout(Duration::from_secs(10), stream.read(&mut part)).await.expect("in time").unwrap_or(0);
            if length == 0 {
                break;
            }
            text.push_str(std::str::from_utf8(&part[..length]).unwrap());
        }
        text
    }

    #[tokio::test]
    async fn connections_beyond_the_limit_wait_for_requests_in_flight() {
        let (server, release) = start_for_one().await;
        let mut first = connect(&server).await;
        first.write_all(b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut second = connect(&server).await;
        second.write_all(REQUEST).await.unwrap();
        let early = timeout(Duration::from_millis(100), second.read(&mut [0; 16])).await;
        assert!(early.is_err(), "the only connection is in use");
        drop(release);
        for stream in [&mut first, &mut second] {
            let text = response(stream).await;
            assert!(text.ends_with("done"), "{text}");
        }
        server.shutdown().await;
    }

    /// Else clients that send nothing would keep others out.
    #[tokio::test]
    async fn connections_without_a_request_give_way_at_the_limit() {
        let (server, _release) = start_for_one().await;
        let silent = connect(&server).await;
        let mut begun = connect(&server).await;
        begun.write_all(&REQUEST[..9]).await.unwrap();
        let mut used = connect(&server).await;
        used.write_all(REQUEST).await.unwrap();
        assert!(response(&mut used).await.ends_with("done"), "idle connections are closed");
        let mut last = connect(&server).await;
        last.write_all(REQUEST).await.unwrap();
        assert!(response(&mut last).await.ends_with("done"), "also after a request");
        for mut closed in [silent, begun, used] {
            assert_eq!(response(&mut closed).await, "");
        }
        server.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_request_has_a_deadline_of_its_own() {
        let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let (server, _release) = start_for_one().await;
        for sent in [&b""[..], &REQUEST[..9]] {
            let start = clock.monotonic();
            let mut client = connect(&server).await;
            client.write_all(sent).await.unwrap();
            let end = client.read(&mut [0; 16]).await;
            assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
            let waited = (clock.monotonic() - start).as_secs();
            assert_eq!(waited, HEADER_DEADLINE.as_secs(), "after {} bytes", sent.len());
        }
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
