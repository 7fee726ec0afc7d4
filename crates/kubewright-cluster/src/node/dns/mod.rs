//! The cluster's DNS, for pods with network namespaces
//! (<https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/>).
//!
//! * [`zone`]: the records of the cluster's domain
//! * [`message`]: queries and their answers
//! * [`resolv_conf`]: the file by which pods find the server
//! * [`service`]: the Service by which other programs find it
//!
//! The server listens on port 53 of the node's address. Queries for other domains are passed on to the host's name
//! servers.

mod message;
pub(crate) mod resolv_conf;
pub(crate) mod service;
pub(crate) mod zone;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use self::message::{Outcome, answer, cannot_answer, complete, fit};
use super::{hosts::Hosts, sockets};

/// The port of DNS.
const PORT: u16 = 53;
/// The maximum size of a message by UDP that is read.
const UDP_SIZE: usize = 4096;
/// The maximum number of concurrent queries, and of connections. Further ones wait in the system's queue.
const CONCURRENT: usize = 256;
/// The timeout of one of the host's name servers. Clients try again after five seconds by default.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(2);
/// The time without a query after which a connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The transport of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

/// The sockets of the server.
#[derive(Debug)]
pub(crate) struct DnsServer {
    udp: Arc<UdpSocket>,
    tcp: TcpListener,
}

impl DnsServer {
    /// Listens at an address.
    ///
    /// # Errors
    /// If another program uses the port.
    pub(crate) async fn bind(address: Ipv4Addr) -> io::Result<Self> {
        let udp = Arc::new(UdpSocket::bind((address, PORT)).await?);
        Ok(Self { udp, tcp: TcpListener::bind((address, PORT)).await? })
    }

    /// Answers queries for as long as it is polled.
    pub(crate) async fn run(self, hosts: Arc<Hosts>) {
        let connections = sockets::serve(self.tcp, CONCURRENT, |stream| serve_connection(stream, hosts.clone()));
        tokio::join!(serve_udp(self.udp, &hosts), connections);
    }
}

async fn serve_udp(socket: Arc<UdpSocket>, hosts: &Arc<Hosts>) {
    let mut queries = JoinSet::new();
    let permits = Arc::new(Semaphore::new(CONCURRENT));
    let mut buffer = vec![0; UDP_SIZE];
    loop {
        while queries.try_join_next().is_some() {}
        // The semaphore is never closed.
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let (length, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // The system reports that an earlier answer couldn't be delivered.
            Err(error) => {
                tracing::debug!(%error, "failed to receive a DNS query");
                continue;
            }
        };
        let (query, socket, hosts) = (buffer[..length].to_vec(), socket.clone(), hosts.clone());
        queries.spawn(async move {
            let _permit = permit;
            if let Some(reply) = resolve(&query, Transport::Udp, &hosts).await
                && let Err(error) = socket.send_to(&reply, client).await
            {
                tracing::debug!(%error, "failed to answer a DNS query");
            }
        });
    }
}

/// Answers the queries of a connection, one after the other.
async fn serve_connection(mut stream: TcpStream, hosts: Arc<Hosts>) {
    while let Ok(Ok(query)) = timeout(IDLE_TIMEOUT, read(&mut stream)).await {
        let Some(reply) = resolve(&query, Transport::Tcp, &hosts).await else { return };
        if write(&mut stream, &reply).await.is_err() {
            return;
        }
    }
}

/// Reads a message with its length.
async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

/// Writes a message with its length, at once, since some clients read both at once.
async fn write(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await
}

/// Answers a query; `None` if it isn't one.
async fn resolve(query: &[u8], transport: Transport, hosts: &Hosts) -> Option<Vec<u8>> {
    let reply = match answer(query, |name| hosts.records(name))? {
        Outcome::Reply(reply) => reply,
        Outcome::Forward => return Some(forward(query, transport).await.unwrap_or_else(|| cannot_answer(query))),
        Outcome::Follow { reply, rest } => match forward(&rest, Transport::Tcp).await {
            Some(more) => complete(&reply, &more),
            None => reply,
        },
    };
    Some(if transport == Transport::Udp { fit(query, reply) } else { reply })
}

/// Asks the host's name servers, one after the other. Returns the first answer.
async fn forward(query: &[u8], transport: Transport) -> Option<Vec<u8>> {
    for server in resolv_conf::host().nameservers {
        let server = SocketAddr::new(server.parse().ok()?, PORT);
        let asked = async {
            match transport {
                Transport::Udp => ask_udp(query, server).await,
                Transport::Tcp => {
                    let mut stream = TcpStream::connect(server).await?;
                    write(&mut stream, query).await?;
                    read(&mut stream).await
                }
            }
        };
        match timeout(UPSTREAM_TIMEOUT, asked).await {
            Ok(Ok(reply)) => return Some(reply),
            Ok(Err(error)) => tracing::debug!(%error, %server, "a name server of the host doesn't answer"),
            Err(_elapsed) => tracing::debug!(%server, "a name server of the host doesn't answer in time"),
        }
    }
    None
}

async fn ask_udp(query: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let socket = sockets::connect_udp(server).await?;
    socket.send(query).await?;
    let mut buffer = vec![0; UDP_SIZE];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if length >= 2 && buffer[..2] == query[..2] {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}
