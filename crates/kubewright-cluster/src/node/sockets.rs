//! Sockets of the node's servers.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
    time::sleep,
};

/// The delay after the system failed to accept a connection, for example because of a lack of open files.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Handles each connection in a task, at most `limit` of them at a time, for as long as it is polled. Further
/// connections wait in the system's queue. Dropping the future ends the connections.
pub(crate) async fn serve<F>(listener: TcpListener, limit: usize, handle: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < limit => match accepted {
                Ok((stream, _)) => drop(connections.spawn(handle(stream))),
                Err(error) => {
                    tracing::debug!(%error, "failed to accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// Opens a socket that sends datagrams to an address, and receives only those of that address.
///
/// # Errors
/// If the system has no socket or no route.
pub(crate) async fn connect_udp(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let any = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(address).await?;
    Ok(socket)
}
