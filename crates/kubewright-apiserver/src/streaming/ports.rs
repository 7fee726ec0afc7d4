//! The streams of forwarded ports.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{
    StreamExt,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use http::Response;
use kubewright_apimachinery::status::Status;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};

use super::{
    Frame, Output, QUEUE,
    channels::{self, Framing, MAX_MESSAGE, Receive},
    spdy::{self, SpdyUpgrade, Stream},
    tunnel,
};
use crate::{
    action::ActionRequest,
    body::Body,
    proxy::copy_until_end,
    websocket::{PendingSocket, Upgrade},
};

/// The subprotocol of a WebSocket that contains SPDY.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// The subprotocols of WebSockets.
const WEBSOCKET: [&str; 3] = [TUNNEL, "v4.channel.k8s.io", "v4.base64.channel.k8s.io"];
/// The subprotocol of SPDY.
const SPDY: &str = "portforward.k8s.io";
/// The maximum number of ports of a request, whose channels are numbered by a byte.
const MAX_PORTS: usize = 100;

/// The streams of a connection to a port.
#[derive(Debug)]
pub struct PortStreams {
    /// The port.
    pub port: u16,
    /// The client's data, until the client ends it.
    pub input: mpsc::Receiver<Bytes>,
    /// The data for the client.
    pub output: Output,
}

/// Connects a client to ports, by WebSocket or SPDY. `forward` serves each connection to a port; an error is sent to
/// the client. Returns the response to the request; a task of the connection does the rest, until the client
/// disconnects.
///
/// # Errors
/// Returns 400 if the client doesn't ask for an upgrade, or for valid ports.
pub fn serve_ports<F>(
    request: &ActionRequest,
    forward: impl Fn(PortStreams) -> F + Send + Sync + 'static,
) -> Result<Response<Body>, Status>
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let forward = move |streams: PortStreams| -> BoxFuture<'static, Result<(), String>> { Box::pin(forward(streams)) };
    let Some(upgrade) = Upgrade::requested(&request.parts) else {
        let upgrade = SpdyUpgrade::requested(&request.parts, &[SPDY])?;
        let (response, tasks) = (upgrade.response(), upgrade.tasks.clone());
        let closing = tasks.closing.clone();
        tasks.spawn(async move {
            if let Some(connection) = upgrade.open().await {
                let _ended = closing.run_until_cancelled(by_spdy(connection, &forward)).await;
            }
        });
        return Ok(response);
    };
    // A tunnel gets its ports from the streams in it.
    let ports = ports(&request.query);
    let (response, pending) = upgrade.negotiate(&WEBSOCKET);
    let Some(pending) = pending else { return Ok(response) };
    let (closing, tasks) = (pending.tasks.closing.clone(), pending.tasks.clone());
    if pending.protocol == TUNNEL {
        tasks.spawn(async move {
            if let Some(socket) = pending.open(MAX_MESSAGE).await {
                tunnel::serve(socket, &closing, |connection| by_spdy(connection, &forward)).await;
            }
        });
        return Ok(response);
    }
    let ports = ports?;
    tasks.spawn(async move { by_websocket(pending, ports, &forward).await });
    Ok(response)
}

/// Connects a client that sends SPDY in a WebSocket to another server, which has accepted it.
pub(crate) fn serve_tunnel<C, E>(
    upgrade: Upgrade,
    protocol: &str,
    connection: impl Future<Output = Result<C, E>> + Send + 'static,
) -> Response<Body>
where
    C: AsyncRead + AsyncWrite + Send + 'static,
    E: std::fmt::Display + Send,
{
    let (response, pending) = upgrade.negotiate(&[protocol]);
    let Some(pending) = pending else { return response };
    let (closing, tasks) = (pending.tasks.closing.clone(), pending.tasks.clone());
    tasks.spawn(async move {
        let Some(socket) = pending.open(MAX_MESSAGE).await else { return };
        tunnel::serve(socket, &closing, |client| async {
            let copied = match connection.await {
                Ok(server) => copy_until_end(client, server).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = copied {
                tracing::debug!(error, "a tunnel failed");
            }
        })
        .await;
    });
    response
}

/// Returns the ports of a request.
fn ports(query: &[(String, String)]) -> Result<Vec<u16>, Status> {
    let values: Vec<_> = query.iter().filter(|(name, _)| name == "ports").map(|(_, value)| value).collect();
    let refuse = |why: String| Err(Status::bad_request(why));
    if values.is_empty() {
        return refuse("query parameter \"port\" is required".into());
    }
    let mut ports = Vec::new();
    for text in values.into_iter().flat_map(|value| value.split(',')) {
        match text.parse::<u16>() {
            Ok(0) => return refuse(format!("port {text:?} must be > 0")),
            Ok(port) => ports.push(port),
            Err(_) => return refuse(format!("unable to parse {text:?} as a port")),
        }
    }
    if ports.len() > MAX_PORTS {
        return refuse(format!("at most {MAX_PORTS} ports can be forwarded"));
    }
    Ok(ports)
}

type Forward<'a> = &'a (dyn Fn(PortStreams) -> BoxFuture<'static, Result<(), String>> + Send + Sync);

/// Serves one connection to a port, and reports its failure.
async fn serve_port(streams: PortStreams, error: Output, forward: Forward<'_>) {
    let output = streams.output.clone();
    if let Err(why) = forward(streams).await {
        // A client that is gone doesn't need to know.
        let _gone = error.send(why.into()).await;
    }
    output.end().await;
    error.end().await;
}

/// Forwards ports with two channels each: data and errors. Each channel begins with its port.
async fn by_websocket(pending: PendingSocket, ports: Vec<u16>, forward: Forward<'_>) {
    let (closing, framing) = (pending.tasks.closing.clone(), Framing::of(&pending.protocol));
    let Some(socket) = pending.open(MAX_MESSAGE).await else { return };
    let (queue, frames) = mpsc::channel(QUEUE);
    let (mut first, mut inputs, mut connections) = (Vec::new(), Vec::new(), Vec::new());
    for (port, data) in ports.into_iter().zip((0..).step_by(2)) {
        let number = Bytes::copy_from_slice(&port.to_le_bytes());
        first.extend([(data, number.clone()), (data + 1, number)]);
        let (sender, input) = mpsc::channel(QUEUE);
        inputs.push(Some(sender));
        let output = |stream| Output { stream, queue: queue.clone() };
        connections.push(serve_port(PortStreams { port, input, output: output(data) }, output(data + 1), forward));
    }
    let work = async {
        join_all(connections).await;
        let _gone = queue.send(Frame::Last).await;
    };
    channels::serve(socket, &closing, framing, first, frames, Inputs(inputs), work).await;
}

/// The receiving ends of the data channels.
#[derive(Debug)]
struct Inputs(Vec<Option<mpsc::Sender<Bytes>>>);

impl Receive for Inputs {
    async fn receive(&mut self, channel: u8, bytes: Bytes) {
        let Some(input) = self.0.get_mut(usize::from(channel / 2)).filter(|_| channel.is_multiple_of(2)) else {
            return;
        };
        if let Some(sender) = input
            && !bytes.is_empty()
            && sender.send(bytes).await.is_err()
        {
            *input = None;
        }
    }
}

/// Serves a pair of streams until its end, or until the client resets it.
async fn serve_pair(data: Stream, error: Stream, forward: Forward<'_>) {
    let port = data.headers.get("port").and_then(|port| port.parse().ok()).unwrap_or_default();
    let Stream { input, output, reset, guard, .. } = data;
    let _guards = (guard, error.guard);
    tokio::select! {
        biased;
        () = serve_port(PortStreams { port, input, output }, error.output, forward) => {}
        () = reset.cancelled() => {}
    }
}

/// Forwards ports with the streams that a client opens: a pair of data and errors for each connection.
async fn by_spdy(connection: impl AsyncRead + AsyncWrite, forward: Forward<'_>) {
    let (queue, frames) = mpsc::channel(QUEUE);
    let (opened, mut streams) = mpsc::channel(QUEUE);
    let work = async {
        let mut halves: BTreeMap<String, (String, Stream)> = BTreeMap::new();
        let mut connections = FuturesUnordered::new();
        loop {
            let stream: Stream = tokio::select! {
                biased;
                Some(()) = connections.next() => continue,
                stream = streams.recv() => match stream {
                    Some(stream) => stream,
                    None => break,
                },
            };
            let text = |name: &str| stream.headers.get(name).cloned().unwrap_or_default();
            let (kind, id) = (text("streamtype"), text("requestid"));
            match halves.remove(&id) {
                Some((first, half)) if first != kind => {
                    let (data, error) = if kind == "data" { (stream, half) } else { (half, stream) };
                    connections.push(serve_pair(data, error, forward));
                }
                _ if matches!(&*kind, "data" | "error") => drop(halves.insert(id, (kind, stream))),
                _ => stream.output.end().await,
            }
        }
    };
    spdy::serve(connection, opened, queue, frames, work).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers() {
        let check = |values: &[&str], expect: Result<&[u16], &str>| {
            let query: Vec<_> = values.iter().map(|value| ("ports".to_owned(), (*value).to_owned())).collect();
            let found = ports(&query).map_err(|status| status.message);
            assert_eq!(found.as_deref().map_err(String::as_str), expect);
        };
        check(&["80"], Ok(&[80]));
        check(&["80,81", "82"], Ok(&[80, 81, 82]));
        check(&[], Err("query parameter \"port\" is required"));
        check(&["0"], Err("port \"0\" must be > 0"));
        check(&["x"], Err("unable to parse \"x\" as a port"));
        check(&["70000"], Err("unable to parse \"70000\" as a port"));
    }
}
