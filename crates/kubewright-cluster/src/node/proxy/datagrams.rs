//! The UDP ports of services.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::UdpSocket, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use super::service_listener::{Acceptor, CONNECTIONS};
use crate::node::sockets::connect_udp;

/// The maximum size of a datagram.
const SIZE: usize = 65_535;
/// The time without a reply after which a client's next datagram may go to another endpoint. That of Linux' connection
/// tracking, which kube-proxy relies on.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// A client and its endpoint.
struct Session {
    endpoint: SocketAddr,
    socket: Arc<UdpSocket>,
    /// Passes on the replies.
    replies: AbortOnDropHandle<()>,
}

impl<F: Fn(&io::Error)> Acceptor<F> {
    /// Passes on datagrams while there are endpoints.
    pub(super) async fn relay(&mut self, socket: UdpSocket) {
        let socket = Arc::new(socket);
        let mut sessions: BTreeMap<SocketAddr, Session> = BTreeMap::new();
        let mut buffer = vec![0; SIZE];
        loop {
            let (length, client) = tokio::select! {
                biased;
                changed = self.route.changed() => {
                    let route = self.route.borrow_and_update();
                    if changed.is_err() || route.endpoints.is_empty() {
                        return;
                    }
                    sessions.retain(|_, session| route.endpoints.contains(&session.endpoint));
                    continue;
                }
                received = socket.recv_from(&mut buffer) => match received {
                    Ok(received) => received,
                    Err(error) => {
                        tracing::debug!(%error, address = %self.address, "failed to receive a datagram");
                        continue;
                    }
                },
            };
            if sessions.len() >= CONNECTIONS
                || sessions.get(&client).is_some_and(|session| session.replies.is_finished())
            {
                sessions.retain(|_, session| !session.replies.is_finished());
            }
            let upstream = match sessions.get(&client) {
                Some(session) => session.socket.clone(),
                // As a full table of the kernel does, it drops datagrams of new clients.
                None if sessions.len() >= CONNECTIONS => continue,
                None => match self.session(&socket, client).await {
                    Ok(session) => sessions.entry(client).or_insert(session).socket.clone(),
                    Err(error) => {
                        tracing::debug!(%error, address = %self.address, "failed to reach an endpoint");
                        continue;
                    }
                },
            };
            if let Err(error) = upstream.send(&buffer[..length]).await {
                tracing::debug!(%error, address = %self.address, "failed to pass on a datagram");
                sessions.remove(&client);
            }
        }
    }

    /// Chooses the endpoint of a client.
    async fn session(&mut self, own: &Arc<UdpSocket>, client: SocketAddr) -> io::Result<Session> {
        let endpoint = *self.order(client.ip()).first().ok_or(io::ErrorKind::NotConnected)?;
        let socket = Arc::new(connect_udp(endpoint).await?);
        let (own, replying) = (own.clone(), socket.clone());
        let replies = tokio::spawn(async move {
            let mut buffer = vec![0; SIZE];
            while let Ok(Ok(length)) = timeout(IDLE_TIMEOUT, replying.recv(&mut buffer)).await {
                if own.send_to(&buffer[..length], client).await.is_err() {
                    return;
                }
            }
        });
        Ok(Session { endpoint, socket, replies: AbortOnDropHandle::new(replies) })
    }
}
