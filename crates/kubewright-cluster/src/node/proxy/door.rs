//! One address at which a service answers: a socket, as long as there is somebody behind it, and the connections made there.

use std::{io, net::SocketAddr, time::Duration};

use kubewright_apimachinery::clock::SharedClock;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;

use super::plan::{Route, Turn};

/// How many connections one address carries; others wait in the system's queue. Each takes two open files and two buffers
/// of 8 KiB.
const CONNECTIONS: usize = 1024;
/// How long an endpoint may take to be connected to.
const CONNECT: Duration = Duration::from_secs(5);
/// How long to wait before an address that can't be had is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How long to wait when the system refuses a connection, for want of open files for instance.
const BREATH: Duration = Duration::from_millis(50);

/// An address that answers. Dropping it closes the socket and ends its connections; [`Door::close`] waits for that.
#[derive(Debug)]
pub(crate) struct Door {
    route: watch::Sender<Route>,
    task: JoinHandle<()>,
}

impl Door {
    /// Begins to answer. `trouble` is told, once in a row, when the address can't be had.
    pub(crate) fn open(
        address: SocketAddr,
        route: Route,
        clock: SharedClock,
        tasks: &TaskTracker,
        trouble: impl Fn(&io::Error) + Send + 'static,
    ) -> Self {
        let (sender, receiver) = watch::channel(route);
        let keeper =
            Keeper { address, route: receiver, clock, turn: Turn::default(), connections: JoinSet::new(), trouble };
        Self { route: sender, task: tasks.spawn(keeper.run()) }
    }

    /// Connections go there from now on. Those that are made already stay.
    pub(crate) fn lead(&self, route: Route) {
        self.route.send_if_modified(|present| {
            let differs = *present != route;
            *present = route;
            differs
        });
    }

    /// Ends the socket and its connections.
    pub(crate) async fn close(mut self) {
        self.task.abort();
        let _cancelled = (&mut self.task).await;
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Keeper<F> {
    address: SocketAddr,
    route: watch::Receiver<Route>,
    clock: SharedClock,
    turn: Turn,
    connections: JoinSet<()>,
    trouble: F,
}

impl<F: Fn(&io::Error)> Keeper<F> {
    async fn run(mut self) {
        let mut troubled = false;
        // Without anybody behind it the address is not listened at: whoever connects is refused at once.
        while self.until(|route| !route.endpoints.is_empty()).await {
            match TcpListener::bind(self.address).await {
                Ok(listener) => {
                    troubled = false;
                    self.answer(&listener).await;
                }
                Err(error) => {
                    tracing::debug!(%error, address = %self.address, "a service's address can't be had");
                    if !std::mem::replace(&mut troubled, true) {
                        (self.trouble)(&error);
                    }
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Waits until the route is like this; false when the door is gone.
    async fn until(&mut self, holds: impl Fn(&Route) -> bool) -> bool {
        loop {
            if holds(&self.route.borrow_and_update()) {
                return true;
            }
            tokio::select! {
                changed = self.route.changed() => if changed.is_err() { return false },
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    /// Takes connections as long as somebody is behind the address.
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
                        let now = self.clock.monotonic();
                        let order = self.turn.order(&self.route.borrow(), client.ip(), now);
                        self.connections.spawn(carry(stream, order));
                    }
                    Err(error) => {
                        tracing::debug!(%error, address = %self.address, "a connection can't be taken");
                        sleep(BREATH).await;
                    }
                },
            }
        }
    }
}

/// Joins a client with the first endpoint that takes it, until both have said all. When none does, it is reset.
async fn carry(mut client: TcpStream, order: Vec<SocketAddr>) {
    for endpoint in order {
        let Ok(Ok(mut server)) = timeout(CONNECT, TcpStream::connect(endpoint)).await else { continue };
        for stream in [&client, &server] {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection stays as it is");
            }
        }
        if let Err(error) = copy_bidirectional(&mut client, &mut server).await {
            tracing::debug!(%error, %endpoint, "a connection broke off");
        }
        return;
    }
    if let Err(error) = client.set_zero_linger() {
        tracing::debug!(%error, "a connection is closed, not reset");
    }
}
