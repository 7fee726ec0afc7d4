//! Serves the API on a socket: TLS, HTTP/1.1 and HTTP/2, and a shutdown that waits for every task.

use std::{
    convert::Infallible,
    future::{Future, pending},
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::pki_types::CertificateDer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    auth::{ClientCertificates, InvalidCertificate, UserInfo},
    authentication_config, handlers,
    idle::{OpenBody, OpenRequests},
    response::Response,
    state::State,
    storage::Key,
    tls::{ALPN_HTTP2, Credentials, ServerCertificate, TlsError},
    websocket::ConnectionTasks,
    write_batch::Transport,
};

/// The time that requests have to finish after a shutdown has begun.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The default time after which an idle connection is closed. Most clients close idle connections after 90 seconds. If
/// the server closed them earlier, it could close a connection just as a request arrives.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// The pause after the system failed to accept a connection, for example because no file descriptors are left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// The maximum number of concurrent streams of an HTTP/2 connection. Each watch is one.
const MAX_STREAMS: u32 = 10_000;

/// The answer to a request without TLS.
const PLAIN_HTTP: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
/// The number of bytes of such a request that are read before the connection is closed.
const MAX_PLAIN_HTTP: u64 = 64 << 10;

/// Options of a listener.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenOptions {
    /// The address to bind. Defaults to `127.0.0.1:0`, a free port.
    pub address: SocketAddr,
    /// True if addresses that other machines can reach are allowed. Defaults to false, since anyone with the kubeconfig
    /// can run commands on this machine.
    pub allow_remote: bool,
    /// The maximum number of concurrent connections. Defaults to 10,000, since an HTTP/1.1 client has one for each
    /// watch. Further connections wait in the operating system's queue until another one has ended.
    pub max_connections: usize,
    /// The time without an open request after which a connection is closed, so that it doesn't count against the limit.
    /// A watch is open until it ends. Defaults to five minutes.
    pub idle_timeout: Duration,
    /// The certificate of the server. By default, one is generated, by [`ApiServer::certificate_authority`].
    ///
    /// [`ApiServer::certificate_authority`]: crate::ApiServer::certificate_authority
    pub certificate: Option<ServerCertificate>,
    /// The certificates, in PEM, of authorities whose clients are authenticated by their certificates: the common name
    /// is the user, and the organizations are the groups. Empty by default. Certificates of the server's own authority
    /// are always valid, among them that of [`Listener::kubeconfig`].
    pub client_authorities: String,
    /// A path that is put before the path of each request, such as `/api/v1/nodes/NAME/proxy`, with which the listener
    /// is the port of the node's kubelet. Empty by default.
    pub prefix: String,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            allow_remote: false,
            max_connections: 10_000,
            idle_timeout: IDLE_TIMEOUT,
            certificate: None,
            client_authorities: String::new(),
            prefix: String::new(),
        }
    }
}

impl From<SocketAddr> for ListenOptions {
    fn from(address: SocketAddr) -> Self {
        Self { address, ..Self::default() }
    }
}

/// An error of listening.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Other machines could reach the address, which isn't allowed.
    #[error("{0} is not a loopback address; set allow_remote to listen on it")]
    NotLoopback(SocketAddr),
    /// The address can't be bound.
    #[error("failed to listen on {address}")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The credentials can't be generated.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A socket on which the server listens. Dropping it closes the socket and all connections. [`Listener::shutdown`] also
/// waits for them. Its token is invalid afterwards.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    kubeconfig: String,
    authority: String,
    token: String,
    state: Arc<State>,
    shutdown: Shutdown,
    tasks: TaskTracker,
}

/// The two steps of a shutdown.
#[derive(Clone, Debug, Default)]
struct Shutdown {
    /// No further requests are accepted, and streams end.
    closing: CancellationToken,
    /// Every task ends.
    abort: CancellationToken,
}

impl Listener {
    pub(crate) async fn start(state: Arc<State>, options: ListenOptions) -> Result<Self, ListenError> {
        let ListenOptions {
            address,
            allow_remote,
            max_connections,
            idle_timeout,
            certificate,
            client_authorities,
            prefix,
        } = options;
        if !address.ip().is_loopback() && !allow_remote {
            return Err(ListenError::NotLoopback(address));
        }
        let bind_error = |source| ListenError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(bind_error)?;
        let address = socket.local_addr().map_err(bind_error)?;
        let addresses: Vec<_> = [address.ip()].into_iter().chain(kubernetes_service_ip(&state)).collect();
        let ca = &state.certificate_authority;
        if !client_authorities.is_empty() && ClientCertificates::new(&client_authorities).is_empty() {
            return Err(TlsError::ClientAuthorities.into());
        }
        let authorities = ca.certificate().map_err(TlsError::from)? + &client_authorities;
        let clients = ClientCertificates::new(&authorities);
        let given = state.credentials.clone();
        let credentials = Credentials::new(ca, &addresses, certificate.as_ref(), &authorities, given)?;
        if let Err(error) = authentication_config::publish(&state, &authorities) {
            tracing::error!(%error, "failed to publish how users are identified to aggregated API servers");
        }
        state.authenticator.add_token(credentials.token(), UserInfo::admin());
        let listener = Self {
            address,
            kubeconfig: credentials.kubeconfig(&format!("https://{address}")),
            authority: credentials.authority().to_owned(),
            token: credentials.token().to_owned(),
            state: state.clone(),
            shutdown: Shutdown::default(),
            tasks: TaskTracker::new(),
        };
        let shared = Arc::new(Shared {
            acceptor: TlsAcceptor::from(credentials.server),
            state,
            clients,
            shutdown: listener.shutdown.clone(),
            tasks: listener.tasks.clone(),
            connections: Arc::new(Semaphore::new(max_connections.clamp(1, Semaphore::MAX_PERMITS))),
            idle_timeout,
            prefix,
        });
        listener.tasks.spawn(shared.accept(socket));
        Ok(listener)
    }

    /// Returns the bound address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a kubeconfig in YAML whose user has unrestricted access. It contains a private key: protect it (mode
    /// 0600).
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig.clone()
    }

    /// Returns the certificate of the authority that signed the server's certificate, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns a bearer token for the same user, for clients without certificates.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Closes the socket, ends watches, and lets other requests finish for up to two seconds. Returns when every task
    /// has ended.
    pub async fn shutdown(self) {
        self.shutdown.closing.cancel();
        self.tasks.close();
        if timeout(SHUTDOWN_TIMEOUT, self.tasks.wait()).await.is_err() {
            self.shutdown.abort.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Kept credentials may also be those of another listener.
        if self.state.credentials.is_none() {
            self.state.authenticator.remove_token(&self.token);
        }
        self.shutdown.closing.cancel();
        self.shutdown.abort.cancel();
    }
}

/// Returns the address of the service `kubernetes`, through which pods reach the server.
fn kubernetes_service_ip(state: &State) -> Option<IpAddr> {
    let service = state.store.get("/services", &Key::new("default", "kubernetes"))?.value();
    service["spec"]["clusterIP"].as_str()?.parse().ok()
}

/// The state shared by all connections of a listener.
struct Shared {
    state: Arc<State>,
    clients: ClientCertificates,
    acceptor: TlsAcceptor,
    shutdown: Shutdown,
    tasks: TaskTracker,
    /// Limits the number of connections: one permit for each further connection.
    connections: Arc<Semaphore>,
    idle_timeout: Duration,
    prefix: String,
}

impl Shared {
    async fn accept(self: Arc<Self>, socket: TcpListener) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.shutdown.closing.cancelled() => return,
                accepted = self.next_connection(&socket) => accepted,
            };
            match accepted {
                Ok((stream, permit)) => {
                    let shared = self.clone();
                    let tasks = Arc::new(ConnectionTasks {
                        remote: stream.peer_addr().ok().map(|address| address.ip()),
                        tracker: self.tasks.clone(),
                        closing: self.shutdown.closing.clone(),
                        abort: self.shutdown.abort.clone(),
                        _permit: permit,
                    });
                    self.tasks.spawn(async move {
                        tokio::select! {
                            biased;
                            () = shared.clone().connection(stream, &tasks) => {}
                            () = when_woken(shared.shutdown.abort.cancelled()) => {}
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Accepts the next connection, once the number of connections is below the limit.
    async fn next_connection(&self, socket: &TcpListener) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        if self.connections.available_permits() == 0 {
            tracing::warn!("the limit of connections is reached; further ones wait until one ends");
        }
        let permit = self.connections.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = socket.accept().await?;
        Ok((stream, permit))
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, tasks: &Arc<ConnectionTasks>) {
        // Responses are small. Without this option, each could wait for the client's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        let stream = match timeout(HANDSHAKE_TIMEOUT, self.handshake(stream)).await {
            Ok(Ok(Some(stream))) => stream,
            Ok(Ok(None)) => return tracing::debug!("a client sent an HTTP request without TLS"),
            Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => return tracing::debug!("a TLS handshake took too long"),
        };
        let identity = self.identify(stream.get_ref().1.peer_certificates());
        let open = OpenRequests::new(self.state.clock.clone());
        let service = service_fn(|request: Request<Incoming>| {
            let (open, response) = (open.open(), self.handle(&identity, tasks, request));
            async move { Ok::<_, Infallible>(response.await.map(|body| OpenBody::new(body, open))) }
        });
        let mut builder = auto::Builder::new(TrackedExecutor(self.tasks.clone(), self.shutdown.abort.clone()));
        // A connection whose request doesn't arrive is idle. hyper's own time limit costs a timer for each request.
        builder.http1().header_read_timeout(None);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
        let http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
        let (stream, batch) = Transport::new(stream, http2);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let stop = when_woken(async {
            tokio::select! {
                biased;
                () = self.shutdown.closing.cancelled() => {}
                () = open.idle_for(self.idle_timeout) => {}
            }
        });
        let ended = tokio::select! {
            biased;
            ended = batch.drive(connection.as_mut()) => ended,
            () = stop => {
                connection.as_mut().graceful_shutdown();
                // hyper waits for the rest of a request that has begun to arrive.
                tokio::select! {
                    biased;
                    ended = batch.drive(connection) => ended,
                    () = open.idle_for(self.idle_timeout) => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection failed");
        }
    }

    /// Performs the TLS handshake. Returns `None` after the answer to a client that sent HTTP instead, as servers in Go
    /// do.
    async fn handshake(&self, mut stream: TcpStream) -> io::Result<Option<TlsStream<TcpStream>>> {
        let mut beginning = [0];
        let read = stream.peek(&mut beginning).await?;
        // A handshake begins with a control character, a request with the name of its method.
        if read == 0 || !beginning[0].is_ascii_uppercase() {
            return self.acceptor.accept(stream).await.map(Some);
        }
        stream.write_all(PLAIN_HTTP).await?;
        stream.shutdown().await?;
        // To close the socket with unread bytes would discard the answer.
        tokio::io::copy(&mut stream.take(MAX_PLAIN_HTTP), &mut tokio::io::sink()).await?;
        Ok(None)
    }

    /// Returns the identity of a client that showed these certificates, its own first.
    fn identify(&self, chain: Option<&[CertificateDer<'_>]>) -> Identity {
        let Some(chain) = chain.filter(|chain| !chain.is_empty()) else { return Identity::None };
        match self.clients.user(chain, self.state.clock.now()) {
            Ok(user) => Identity::User(Arc::new(user)),
            Err(error) => {
                tracing::debug!(%error, "the certificate of a client was refused");
                Identity::Unknown
            }
        }
    }

    fn handle(
        &self,
        identity: &Identity,
        tasks: &Arc<ConnectionTasks>,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Response> + use<> {
        let state = self.state.clone();
        request.extensions_mut().insert(tasks.clone());
        if !self.prefix.is_empty() {
            handlers::prefix_path(&mut request, &self.prefix);
        }
        match identity {
            Identity::User(user) => {
                request.extensions_mut().insert(user.clone());
            }
            Identity::Unknown => {
                request.extensions_mut().insert(InvalidCertificate);
            }
            Identity::None => {}
        }
        handlers::handle(state, request)
    }
}

/// Returns a future that polls another one only after it has woken its task. The task of a connection is woken for each
/// request, and a poll of a token's cancellation locks what all connections share.
async fn when_woken<F: Future>(future: F) -> F::Output {
    match FuturesUnordered::from_iter([future]).next().await {
        Some(output) => output,
        // There is one future.
        None => pending().await,
    }
}

/// The identity of a client according to its certificate.
enum Identity {
    /// The client sent no certificate.
    None,
    /// The user of a valid certificate.
    User(Arc<UserInfo>),
    /// A certificate that isn't valid.
    Unknown,
}

/// Runs hyper's tasks so that a shutdown can wait for them.
#[derive(Clone)]
struct TrackedExecutor(TaskTracker, CancellationToken);

impl<F> hyper::rt::Executor<F> for TrackedExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        let abort = self.1.clone();
        self.0.spawn(async move {
            tokio::select! {
                biased;
                _ = future => {}
                () = abort.cancelled() => {}
            }
        });
    }
}
