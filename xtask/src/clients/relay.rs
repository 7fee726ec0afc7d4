//! A relay of TCP connections. Requesting an URL cuts all connections, so that test programs in any language can test
//! how their client recovers.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// A relay on loopback addresses. Its threads end with the process.
#[derive(Debug)]
pub(super) struct Relay {
    address: SocketAddr,
    control: SocketAddr,
}

impl Default for Relay {
    fn default() -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { address: nowhere, control: nowhere }
    }
}

/// The connections that are open, or were.
type Connections = Arc<Mutex<Vec<TcpStream>>>;

impl Relay {
    /// Starts a relay to a server.
    pub(super) fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let control = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let relay = Self { address: listener.local_addr()?, control: control.local_addr()? };
        let connections = Connections::default();
        let open = connections.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // The client sees a closed connection if the server can't be reached.
                let _ = connect(client, server, &open);
            }
        });
        thread::spawn(move || {
            for client in control.incoming().flatten() {
                let _ = cut(client, &connections);
            }
        });
        Ok(relay)
    }

    /// Returns the address that clients use in place of the server's.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL that cuts all connections.
    pub(super) fn cut_url(&self) -> String {
        format!("http://{}/", self.control)
    }
}

fn connect(client: TcpStream, server: SocketAddr, open: &Connections) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    for (from, to) in [(&client, &server), (&server, &client)] {
        from.set_nodelay(true)?;
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            // The end of one direction ends both, as it does for HTTP.
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
    }
    open.lock().unwrap_or_else(PoisonError::into_inner).extend([client, server]);
    Ok(())
}

/// Cuts all connections, and then answers the request.
fn cut(mut client: TcpStream, connections: &Connections) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut part = [0; 1024];
        match client.read(&mut part)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&part[..count]),
        }
    }
    for connection in connections.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // It may be closed already.
        let _ = connection.shutdown(Shutdown::Both);
    }
    client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_relayed_until_the_connections_are_cut() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::to(server.local_addr().unwrap()).unwrap();
        let mut client = TcpStream::connect(relay.address()).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        client.write_all(b"ping").unwrap();
        let mut received = [0; 4];
        accepted.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"ping");
        accepted.write_all(b"pong").unwrap();
        client.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"pong");

        let mut control = TcpStream::connect(relay.control).unwrap();
        control.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        control.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        let is_closed = |stream: &mut TcpStream| !matches!(stream.read(&mut [0]), Ok(1..));
        assert!(is_closed(&mut client) && is_closed(&mut accepted));
        TcpStream::connect(relay.address()).unwrap();
        server.accept().unwrap();
    }
}
