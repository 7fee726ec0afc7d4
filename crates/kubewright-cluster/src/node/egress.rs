//! Connections from the network namespaces of pods to other machines.
//!
//! A pod's address means nothing to other machines. So the pod's namespace redirects such connections (TCP) to a socket
//! of the node in the same namespace, and the node connects to the original destination from the network of the host.
//! Other packets to other machines are rejected. The rules end with the namespace; the host's own firewall isn't
//! changed.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    time::Duration,
};

use kubewright_apimachinery::cidr::Cidr;
use socket2::SockRef;
use tokio::{io::copy_bidirectional, net::TcpStream, time::timeout};

use super::sockets;

/// The port, at 127.0.0.1 of a pod, of the node's socket.
pub(crate) const PORT: u16 = 64_999;
/// The maximum number of connections of a pod. Further ones wait in the system's queue.
const CONNECTIONS: usize = 1024;
/// The timeout of a connection to another machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the rules of a pod's namespace, in the language of nftables. `inside` are the ranges of addresses that don't
/// belong to other machines.
pub(crate) fn rules(inside: &[Cidr]) -> String {
    let accept = |chain: &str| {
        inside
            .iter()
            .map(|range| format!("add rule ip kubewright {chain} ip daddr {range} accept; "))
            .collect::<String>()
    };
    format!(
        "add table ip kubewright; \
         add chain ip kubewright output {{ type nat hook output priority -100; }}; {}\
         add rule ip kubewright output meta l4proto tcp redirect to :{PORT}; \
         add chain ip kubewright rest {{ type filter hook output priority 0; }}; {}\
         add rule ip kubewright rest reject",
        accept("output"),
        accept("rest"),
    )
}

/// Opens the node's socket. Must be called in the namespace.
///
/// # Errors
/// If a program of the pod uses the port.
pub(crate) fn bind() -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Passes on the connections to a socket, for as long as it is polled. Dropping the future ends them.
pub(crate) async fn serve(listener: tokio::net::TcpListener) {
    sockets::serve(listener, CONNECTIONS, pass_on).await;
}

/// Connects a pod with the destination that it has asked for, until both sides have closed. If that fails, the pod's
/// connection is reset.
async fn pass_on(mut pod: TcpStream) {
    let result = async {
        let destination = original_destination(&pod)?;
        if destination.port() == PORT && destination.ip().is_loopback() {
            return Err(io::Error::other("the pod has connected to the node's socket itself"));
        }
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(destination)).await;
        let mut other = connected.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
        for stream in [&pod, &other] {
            stream.set_nodelay(true)?;
        }
        copy_bidirectional(&mut pod, &mut other).await.map(drop)
    };
    if let Err(error) = result.await {
        tracing::debug!(%error, "a connection of a pod to another machine has failed");
        if let Err(error) = pod.set_zero_linger() {
            tracing::debug!(%error, "failed to reset a connection; it is closed");
        }
    }
}

#[cfg(target_os = "linux")]
fn original_destination(stream: &TcpStream) -> io::Result<SocketAddr> {
    let address = SockRef::from(stream).original_dst_v4()?;
    address.as_socket().ok_or_else(|| io::Error::other("it has no address"))
}

#[cfg(not(target_os = "linux"))]
fn original_destination(_stream: &TcpStream) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}
