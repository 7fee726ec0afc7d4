//! The server on a socket: TLS, HTTP/1.1 and HTTP/2, and an end that leaves nothing behind.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use kubewright_apimachinery::status::Status;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    auth::{Closing, UserInfo},
    respond,
    server::ApiServer,
    tls::{Credentials, TlsError},
};

/// How long requests that are under way may go on after a shutdown began.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a client may take for its handshake.
const GREETING: Duration = Duration::from_secs(10);
/// How long a connection may wait for its next request. Clients give up idle connections themselves, after 90 seconds
/// mostly; were the server first, a request could run into the closing.
const IDLE: Duration = Duration::from_secs(300);
/// How long to wait when the system refuses a connection, for want of file descriptors for instance.
const BREATH: Duration = Duration::from_millis(50);
/// Streams that a client may have open on one HTTP/2 connection: a watch is one.
const STREAMS: u32 = 10_000;

/// Where to listen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenOptions {
    /// The address; `127.0.0.1:0`, a free port, by default.
    pub address: SocketAddr,
    /// Whether an address that others can reach is allowed. It is not, by default: whoever holds the kubeconfig can run
    /// commands on this machine.
    pub allow_remote: bool,
    /// The most connections at once, 10,000 by default: an HTTP/1.1 client has one for each watch. Further ones wait in the
    /// operating system's queue until another has ended.
    pub max_connections: usize,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), allow_remote: false, max_connections: 10_000 }
    }
}

impl From<SocketAddr> for ListenOptions {
    fn from(address: SocketAddr) -> Self {
        Self { address, ..Self::default() }
    }
}

/// Why the server does not listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Others could reach the address.
    #[error("{0} is not a loopback address")]
    NotLoopback(SocketAddr),
    /// The address can't be had.
    #[error("could not listen on {address}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The credentials could not be made.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A server that listens. Dropping it closes the socket and ends all connections; [`Listener::shutdown`] also waits for
/// them.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    kubeconfig: String,
    authority: String,
    token: String,
    server: ApiServer,
    stop: Stop,
    tasks: TaskTracker,
}

/// The two steps of an end.
#[derive(Clone, Debug, Default)]
struct Stop {
    /// No further requests; streams end.
    closing: CancellationToken,
    /// Everything ends.
    abort: CancellationToken,
}

impl Listener {
    pub(crate) async fn start(server: ApiServer, options: ListenOptions) -> Result<Self, ListenError> {
        let ListenOptions { address, allow_remote, max_connections } = options;
        if !address.ip().is_loopback() && !allow_remote {
            return Err(ListenError::NotLoopback(address));
        }
        let bind_error = |source| ListenError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(bind_error)?;
        let address = socket.local_addr().map_err(bind_error)?;
        let addresses: Vec<_> = [address.ip()].into_iter().chain(server.entrance()).collect();
        let credentials = Credentials::generate(&addresses)?;
        server.allow(credentials.token(), UserInfo::admin());
        let listener = Self {
            address,
            kubeconfig: credentials.kubeconfig(&format!("https://{address}")),
            authority: credentials.authority().to_owned(),
            token: credentials.token().to_owned(),
            server: server.clone(),
            stop: Stop::default(),
            tasks: TaskTracker::new(),
        };
        let shared = Arc::new(Shared {
            acceptor: TlsAcceptor::from(credentials.server.clone()),
            server,
            credentials,
            stop: listener.stop.clone(),
            tasks: listener.tasks.clone(),
            connections: Arc::new(Semaphore::new(max_connections.clamp(1, Semaphore::MAX_PERMITS))),
        });
        listener.tasks.spawn(shared.accept(socket));
        Ok(listener)
    }

    /// The address listened on, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig whose user may do everything, as YAML. It holds a private key: keep it from others (mode 0600).
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig.clone()
    }

    /// The certificate of the authority that signed the server's, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// A bearer token for the same user, for clients without certificates.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Closes the socket, ends watches, lets other requests finish for up to two seconds, and returns when every task has
    /// ended. The token is invalid from then on.
    pub async fn shutdown(self) {
        self.stop.closing.cancel();
        self.tasks.close();
        if timeout(PATIENCE, self.tasks.wait()).await.is_err() {
            self.stop.abort.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.server.revoke(&self.token);
        self.stop.closing.cancel();
        self.stop.abort.cancel();
    }
}

/// What all connections of a listener share.
struct Shared {
    server: ApiServer,
    credentials: Credentials,
    acceptor: TlsAcceptor,
    stop: Stop,
    tasks: TaskTracker,
    /// A permit for each further connection.
    connections: Arc<Semaphore>,
}

impl Shared {
    async fn accept(self: Arc<Self>, socket: TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = self.next_connection(&socket) => accepted,
                () = self.stop.closing.cancelled() => return,
            };
            match accepted {
                Ok((stream, permit)) => {
                    let shared = self.clone();
                    self.tasks.spawn(async move {
                        let _permit = permit;
                        tokio::select! {
                            () = shared.clone().connection(stream) => {}
                            () = shared.stop.abort.cancelled() => {}
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(BREATH).await;
                }
            }
        }
    }

    /// The next connection, when there may be one more.
    async fn next_connection(&self, socket: &TcpListener) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        if self.connections.available_permits() == 0 {
            tracing::warn!("the limit of connections is reached; further ones wait until another has ended");
        }
        let permit = self.connections.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = socket.accept().await?;
        Ok((stream, permit))
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        // Answers are small and awaited: without this each could wait for the client's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        let stream = match timeout(GREETING, self.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => return tracing::debug!("a TLS handshake took too long"),
        };
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        // A certificate that is not ours is no identity, as a wrong token is none.
        let identity = match shown {
            Some(_) if !self.credentials.is_client(shown) => Identity::Stranger,
            Some(_) => Identity::Known(UserInfo::admin()),
            None => Identity::Unsaid,
        };
        let service = service_fn(|request: Request<Incoming>| self.answer(&identity, request));
        let mut builder = auto::Builder::new(Tracked(self.tasks.clone(), self.stop.abort.clone()));
        builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke off");
        }
    }

    fn answer(
        &self,
        identity: &Identity,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Result<respond::Answer, std::convert::Infallible>> + use<> {
        let server = self.server.clone();
        request.extensions_mut().insert(Closing(self.stop.closing.clone()));
        if let Identity::Known(user) = identity {
            request.extensions_mut().insert(user.clone());
        }
        let stranger =
            matches!(identity, Identity::Stranger) && !request.headers().contains_key(http::header::AUTHORIZATION);
        async move {
            Ok(if stranger {
                respond::status(&Status::new(401, "Unauthorized", "Unauthorized"))
            } else {
                server.answer(request).await
            })
        }
    }
}

/// Who a connection's certificate says it comes from.
enum Identity {
    /// There is none: tokens decide.
    Unsaid,
    /// A certificate of ours.
    Known(UserInfo),
    /// A certificate of someone else.
    Stranger,
}

/// Runs hyper's tasks where they can be waited for.
#[derive(Clone)]
struct Tracked(TaskTracker, CancellationToken);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        let abort = self.1.clone();
        self.0.spawn(async move {
            tokio::select! {
                _ = future => {}
                () = abort.cancelled() => {}
            }
        });
    }
}
