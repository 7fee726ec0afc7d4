//! One address at which a service answers: a socket that is open while the service has endpoints, and its connections.

use std::{
    io,
    net::{self, IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use kubewright_apimachinery::clock::SharedClock;
use kubewright_apimachinery::watch;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, UdpSocket},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;

use super::route::{EndpointPicker, Protocol, Route};
use crate::node::{namespace::NetworkNamespace, network_policy::NetworkPolicies, sockets::ACCEPT_PAUSE};

/// The maximum number of connections, or of clients by UDP, per address. Further connections wait in the system's
/// queue. Each connection takes two open files and two buffers of 8 KiB.
pub(super) const CONNECTIONS: usize = 1024;
/// The timeout of a connection to an endpoint.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay before the next attempt to bind an address.
const RETRY: Duration = Duration::from_secs(2);

/// The network in which the node listens on an address.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In the network of the host.
    Host,
    /// In the network namespace for Services.
    Namespace(Arc<NetworkNamespace>),
}

/// What listeners need.
#[derive(Clone)]
pub(crate) struct ListenerContext {
    pub(crate) clock: SharedClock,
    pub(crate) tasks: TaskTracker,
    /// The policies that limit which endpoints a client reaches, if there are any.
    pub(crate) policies: Option<Arc<NetworkPolicies>>,
}

/// An address at which a service answers. Dropping it closes the socket and its connections; [`ServiceListener::close`]
/// also waits until they are closed.
#[derive(Debug)]
pub(crate) struct ServiceListener {
    route: watch::Sender<Route>,
    task: JoinHandle<()>,
}

impl ServiceListener {
    /// Starts to listen. `on_failure` is only called for the first of several consecutive failures to bind the address.
    pub(crate) fn open(
        (protocol, address): (Protocol, SocketAddr),
        place: Place,
        route: Route,
        context: ListenerContext,
        on_failure: impl Fn(&io::Error) + Send + 'static,
    ) -> Self {
        let (sender, receiver) = watch::channel(route);
        let tasks = context.tasks.clone();
        let acceptor = Acceptor {
            protocol,
            address,
            place,
            route: receiver,
            context,
            picker: EndpointPicker::default(),
            connections: JoinSet::new(),
            on_failure,
        };
        Self { route: sender, task: tasks.spawn(acceptor.run()) }
    }

    /// Sets the endpoints for new connections. Existing connections are kept.
    pub(crate) fn set_route(&self, route: Route) {
        self.route.send_if_modified(|present| {
            let differs = *present != route;
            *present = route;
            differs
        });
    }

    /// Closes the socket and its connections.
    pub(crate) async fn close(mut self) {
        self.task.abort();
        let _cancelled = (&mut self.task).await;
    }
}

impl Drop for ServiceListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts the connections, or the datagrams, of an address.
pub(super) struct Acceptor<F> {
    protocol: Protocol,
    pub(super) address: SocketAddr,
    place: Place,
    pub(super) route: watch::Receiver<Route>,
    context: ListenerContext,
    picker: EndpointPicker,
    connections: JoinSet<()>,
    on_failure: F,
}

/// A bound socket.
enum Socket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Socket {
    async fn bind(protocol: Protocol, address: SocketAddr, place: &Place) -> io::Result<Self> {
        match (protocol, place) {
            (Protocol::Tcp, Place::Host) => TcpListener::bind(address).await.map(Self::Tcp),
            (Protocol::Udp, Place::Host) => UdpSocket::bind(address).await.map(Self::Udp),
            (Protocol::Tcp, Place::Namespace(namespace)) => {
                let listener = namespace.run(move || net::TcpListener::bind(address)).await?;
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(Self::Tcp)
            }
            (Protocol::Udp, Place::Namespace(namespace)) => {
                let socket = namespace.run(move || net::UdpSocket::bind(address)).await?;
                socket.set_nonblocking(true)?;
                UdpSocket::from_std(socket).map(Self::Udp)
            }
        }
    }
}

impl<F: Fn(&io::Error)> Acceptor<F> {
    async fn run(mut self) {
        let mut failing = false;
        // Without endpoints there is no listening socket, so that connections are refused at once.
        while self.until(|route| !route.endpoints.is_empty()).await {
            match Socket::bind(self.protocol, self.address, &self.place).await {
                Ok(socket) => {
                    failing = false;
                    match socket {
                        Socket::Tcp(listener) => self.answer(&listener).await,
                        Socket::Udp(socket) => self.relay(socket).await,
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, address = %self.address, "failed to bind the address of a service");
                    if !std::mem::replace(&mut failing, true) {
                        (self.on_failure)(&error);
                    }
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Waits until the route meets a condition. Returns false if the listener is closed.
    async fn until(&mut self, holds: impl Fn(&Route) -> bool) -> bool {
        loop {
            // The last route of a closed listener may have endpoints.
            if self.route.has_changed().is_err() {
                return false;
            }
            if holds(&self.route.borrow_and_update()) {
                return true;
            }
            tokio::select! {
                biased;
                changed = self.route.changed() => if changed.is_err() { return false },
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    /// Returns the endpoints that a client may reach, in the order in which to try them.
    pub(super) fn order(&mut self, client: IpAddr) -> Vec<SocketAddr> {
        let mut order = self.picker.order(&self.route.borrow(), client, self.context.clock.monotonic());
        if let Some(policies) = &self.context.policies {
            order.retain(|endpoint| policies.allows(client, self.protocol, *endpoint));
        }
        order
    }

    /// Accepts connections while there are endpoints.
    async fn answer(&mut self, listener: &TcpListener) {
        loop {
            tokio::select! {
                biased;
                changed = self.route.changed() => {
                    if changed.is_err() || self.route.borrow_and_update().endpoints.is_empty() {
                        return;
                    }
                }
                Some(_) = self.connections.join_next() => {}
                accepted = listener.accept(), if self.connections.len() < CONNECTIONS => match accepted {
                    Ok((stream, client)) => {
                        let order = self.order(client.ip());
                        self.connections.spawn(forward(stream, order));
                    }
                    Err(error) => {
                        tracing::debug!(%error, address = %self.address, "failed to accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }
}

/// Forwards a client to the first endpoint that accepts the connection, until both sides have closed. If no endpoint
/// accepts, the client's connection is reset.
async fn forward(mut client: TcpStream, order: Vec<SocketAddr>) {
    for endpoint in order {
        let Ok(Ok(mut server)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint)).await else { continue };
        for stream in [&client, &server] {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "failed to set TCP_NODELAY");
            }
        }
        if let Err(error) = copy_bidirectional(&mut client, &mut server).await {
            tracing::debug!(%error, %endpoint, "a connection was interrupted");
        }
        return;
    }
    if let Err(error) = client.set_zero_linger() {
        tracing::debug!(%error, "failed to reset a connection; it is closed");
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::clock::SystemClock;

    use super::*;

    #[tokio::test]
    async fn a_closed_listener_ends_whatever_its_last_route_is() {
        let endpoint = SocketAddr::from(([127, 0, 0, 1], 1));
        let (sender, route) = watch::channel(Route { endpoints: vec![endpoint], affinity: None });
        let mut acceptor = Acceptor {
            protocol: Protocol::Tcp,
            address: endpoint,
            place: Place::Host,
            route,
            context: ListenerContext { clock: SystemClock::shared(), tasks: TaskTracker::new(), policies: None },
            picker: EndpointPicker::default(),
            connections: JoinSet::new(),
            on_failure: |_: &io::Error| (),
        };
        let has_endpoints = |route: &Route| !route.endpoints.is_empty();
        assert!(acceptor.until(has_endpoints).await);
        drop(sender);
        assert!(!acceptor.until(has_endpoints).await);
    }
}
