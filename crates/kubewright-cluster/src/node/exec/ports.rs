//! Connections to ports of pods.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use bytes::BytesMut;
use kubewright_apiserver::streaming::PortStreams;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::RunningContainer;

/// The maximum size of a chunk.
const CHUNK: usize = 32 << 10;

/// Connects a client to a port of a container's pod until the pod closes the connection. `place` identifies the pod in
/// errors.
pub(super) async fn forward(
    container: Arc<RunningContainer>,
    place: String,
    streams: PortStreams,
) -> Result<(), String> {
    let address = &container.address;
    let PortStreams { port, mut input, output } = streams;
    let failed = |why: &dyn std::fmt::Display| format!("error forwarding port {port} to {place}: {why}");
    let connected = connect(&container, port).await;
    let stream = connected.map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            _ => error.to_string(),
        };
        failed(&format!("failed to connect to {address}:{port} inside pod: dial tcp4 {address}:{port}: connect: {why}"))
    })?;
    let (mut reader, mut writer) = stream.into_split();
    let send = async {
        while let Some(chunk) = input.recv().await {
            writer.write_all(&chunk).await?;
        }
        writer.shutdown().await
    };
    let receive = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK);
            if reader.read_buf(&mut buffer).await? == 0 {
                return Ok::<_, io::Error>(());
            }
            output.send(buffer.split().freeze()).await?;
        }
    };
    let (mut send, mut receive) = (std::pin::pin!(send), std::pin::pin!(receive));
    let mut sent = false;
    let result: io::Result<()> = loop {
        tokio::select! {
            biased;
            received = &mut receive => break received,
            result = &mut send, if !sent => match result {
                Ok(()) => sent = true,
                Err(error) => break Err(error),
            },
        }
    };
    result.map_err(|error| failed(&error))
}

/// Connects to a port of a pod. In its own network, the port may be open at 127.0.0.1 only, as for the kubelet.
async fn connect(container: &RunningContainer, port: u16) -> io::Result<TcpStream> {
    if let Some(network) = &container.line.network {
        for local in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            if let Ok(stream) = network.connect((local, port).into()).await {
                return Ok(stream);
            }
        }
    }
    TcpStream::connect(format!("{}:{port}", container.address)).await
}
