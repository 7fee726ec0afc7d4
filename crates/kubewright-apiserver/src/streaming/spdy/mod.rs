//! SPDY/3.1, which `kubectl` multiplexes streams with: on an upgraded connection, or in a WebSocket. This server is
//! itself the client of kubelets.
//!
//! Only clients open streams. As in `github.com/moby/spdystream`, there is no flow control per stream.

mod frame;
mod headers;

use std::{collections::BTreeMap, pin::pin, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use kubewright_apimachinery::status::Status;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, split},
    sync::mpsc,
};

use tokio_util::sync::{CancellationToken, DropGuard};

use self::frame::{FrameReader, Received};
pub(super) use self::headers::Headers;
use super::{Frame, Output, QUEUE};
use crate::{body::Body, response::Response, websocket::ConnectionTasks};

/// The name of the protocol.
pub(crate) const SPDY: &str = "SPDY/3.1";
/// The header of the subprotocols.
pub(crate) const SPDY_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// The maximum number of open streams of a connection.
const MAX_STREAMS: usize = 1000;

/// A request to continue as SPDY/3.1.
pub(super) struct SpdyUpgrade {
    upgraded: OnUpgrade,
    pub(super) tasks: Arc<ConnectionTasks>,
    /// The selected subprotocol.
    pub(super) protocol: &'static str,
}

impl SpdyUpgrade {
    /// Returns the upgrade that a request asks for, with the first supported subprotocol of the client's.
    ///
    /// # Errors
    /// Returns 400 if the request doesn't ask for SPDY/3.1, and 403 if no subprotocol is supported.
    pub(super) fn requested(parts: &Parts, supported: &[&'static str]) -> Result<Self, Status> {
        let missing = || Status::bad_request("Upgrade request required");
        if !is_requested(&parts.headers) {
            return Err(missing());
        }
        let offered = parts.headers.get_all(SPDY_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
        let offered: Vec<_> = offered.flat_map(|value| value.split(',')).map(str::trim).collect();
        let selected = offered.iter().find_map(|name| supported.iter().find(|supported| *supported == name));
        let protocol = *selected.ok_or_else(|| {
            let (client, server) = (offered.join(" "), supported.join(" "));
            let why = format!("unable to negotiate protocol: client supports [{client}], server accepts [{server}]");
            Status::new(403, "Forbidden", why)
        })?;
        Ok(Self {
            upgraded: parts.extensions.get::<OnUpgrade>().ok_or_else(missing)?.clone(),
            tasks: parts.extensions.get::<Arc<ConnectionTasks>>().ok_or_else(missing)?.clone(),
            protocol,
        })
    }

    /// Returns the response that accepts the upgrade.
    pub(super) fn response(&self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
        headers.insert(SPDY_PROTOCOL, HeaderValue::from_static(self.protocol));
        response
    }

    /// Waits until the connection is upgraded. Returns `None` if it ends before.
    pub(super) async fn open(self) -> Option<TokioIo<Upgraded>> {
        match self.upgraded.await {
            Ok(stream) => Some(TokioIo::new(stream)),
            Err(error) => {
                tracing::debug!(%error, "a connection ended before it was upgraded");
                None
            }
        }
    }
}

fn is_requested(headers: &HeaderMap) -> bool {
    let upgrade =
        headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(SPDY.as_bytes()));
    let connection = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).to_lowercase().contains("upgrade");
    upgrade && headers.get_all(header::CONNECTION).iter().any(connection)
}

/// An open stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) headers: Headers,
    /// The data of the other side, until it ends the stream.
    pub(super) input: mpsc::Receiver<Bytes>,
    pub(super) output: Output,
    /// Cancelled when the other side resets the stream.
    pub(super) reset: CancellationToken,
    /// Lets the connection forget the stream when it is dropped.
    pub(super) guard: DropGuard,
}

/// Serves a connection until the work is done and all frames are sent, or until the client disconnects. The work gets
/// the streams through the other end of `opened`, and sends through the other end of `frames`.
pub(super) async fn serve(
    connection: impl AsyncRead + AsyncWrite,
    opened: mpsc::Sender<Stream>,
    queue: mpsc::Sender<Frame>,
    frames: mpsc::Receiver<Frame>,
    work: impl Future<Output = ()>,
) {
    let (reader, writer) = split(connection);
    let work = async {
        work.await;
        let _gone = queue.send(Frame::Last).await;
    };
    let work = pin!(async { tokio::join!(work, write(writer, frames)).1 });
    let read = pin!(read(reader, BTreeMap::new(), opened, &queue));
    let ended = tokio::select! {
        biased;
        written = work => written,
        ended = read => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a SPDY connection failed");
    }
}

/// Opens streams on a connection to a server, and returns what the work with them returns. When the server ends the
/// connection, their input ends.
pub(super) async fn open<F: Future>(
    connection: impl AsyncRead + AsyncWrite,
    headers: Vec<Headers>,
    work: impl FnOnce(Vec<Stream>) -> F,
) -> F::Output {
    let (reader, writer) = split(connection);
    let (queue, frames) = mpsc::channel(QUEUE);
    // Servers open no streams.
    let (opened, _) = mpsc::channel(1);
    let (open, streams): (BTreeMap<_, _>, Vec<_>) = (1..)
        .step_by(2)
        .zip(&headers)
        .map(|(stream, headers)| {
            let (open, own) = pair(stream, headers.clone(), &queue);
            ((stream, open), own)
        })
        .unzip();
    let work = async {
        for (stream, headers) in (1..).step_by(2).zip(headers) {
            send(&queue, Frame::Open(stream, headers)).await;
        }
        let result = work(streams).await;
        send(&queue, Frame::Last).await;
        result
    };
    let session = pin!(async { tokio::join!(work, write(writer, frames)) });
    let read = pin!(async {
        if let Err(error) = read(reader, open, opened, &queue).await {
            tracing::debug!(%error, "a SPDY connection failed");
        }
        std::future::pending::<std::convert::Infallible>().await
    });
    tokio::select! {
        biased;
        (result, _) = session => result,
        never = read => match never {},
    }
}

/// Creates the two sides of a stream: that of its connection, and that of its user.
fn pair(stream: u32, headers: Headers, queue: &mpsc::Sender<Frame>) -> (OpenStream, Stream) {
    let (sender, input) = mpsc::channel(QUEUE);
    let reset = CancellationToken::new();
    let open = OpenStream { sender: Some(sender), reset: reset.clone() };
    let output = Output { stream, queue: queue.clone() };
    let guard = reset.clone().drop_guard();
    (open, Stream { headers, input, output, reset, guard })
}

async fn write(mut writer: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Frame>) -> std::io::Result<()> {
    let mut first = true;
    while let Some(frame) = frames.recv().await {
        let bytes = match frame {
            Frame::Data(stream, bytes) => frame::data(stream, &bytes, false),
            Frame::End(stream) => frame::data(stream, &[], true),
            Frame::Open(stream, headers) => frame::open(stream, &headers, std::mem::take(&mut first)),
            Frame::Accept(stream) => frame::accept(stream, std::mem::take(&mut first)),
            Frame::Refuse(stream) => frame::refuse(stream),
            Frame::Pong(id) => frame::pong(id),
            Frame::Last => break,
        };
        writer.write_all(&bytes).await?;
        writer.flush().await?;
    }
    writer.shutdown().await
}

async fn read(
    reader: impl AsyncRead + Unpin,
    mut streams: BTreeMap<u32, OpenStream>,
    opened: mpsc::Sender<Stream>,
    queue: &mpsc::Sender<Frame>,
) -> std::io::Result<()> {
    let mut reader = FrameReader::new(reader);
    while let Some(frame) = reader.next().await? {
        match frame {
            Received::Open { stream, headers, ended } => {
                streams.retain(|_, stream| stream.sender.is_some() || !stream.reset.is_cancelled());
                if streams.len() >= MAX_STREAMS || streams.contains_key(&stream) {
                    send(queue, Frame::Refuse(stream)).await;
                    continue;
                }
                send(queue, Frame::Accept(stream)).await;
                let (mut open, stream) = pair(stream, headers, queue);
                if ended {
                    open.sender = None;
                }
                streams.insert(stream.output.stream, open);
                let _ended = opened.send(stream).await;
            }
            Received::Data { stream, bytes, ended } => {
                let Some(stream) = streams.get_mut(&stream) else { continue };
                if let Some(sender) = stream.sender.as_ref().filter(|_| !bytes.is_empty()) {
                    // Nobody may read this stream any more.
                    let _unread = sender.send(bytes).await;
                }
                if ended {
                    stream.sender = None;
                }
            }
            Received::Reset(stream) => {
                if let Some(stream) = streams.remove(&stream) {
                    stream.reset.cancel();
                }
            }
            Received::Ping(id) => send(queue, Frame::Pong(id)).await,
            Received::GoAway => return Ok(()),
        }
    }
    Ok(())
}

/// Sends a frame. What can't be sent isn't needed, since the session ends.
async fn send(queue: &mpsc::Sender<Frame>, frame: Frame) {
    let _gone = queue.send(frame).await;
}

/// A stream as its connection knows it.
struct OpenStream {
    /// `None` after the other side has ended the stream.
    sender: Option<mpsc::Sender<Bytes>>,
    reset: CancellationToken,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_has_a_supported_protocol() {
        let request = |lines: &[(&'static str, &'static str)]| {
            let mut request = http::Request::new(());
            for (name, value) in lines {
                request.headers_mut().append(*name, HeaderValue::from_static(value));
            }
            SpdyUpgrade::requested(&request.into_parts().0, &["v4", "v3"]).err().map(|status| status.code)
        };
        let (upgrade, connection) = (("upgrade", "SPDY/3.1"), ("connection", "Upgrade"));
        assert_eq!(request(&[]), Some(400));
        assert_eq!(request(&[upgrade]), Some(400));
        assert_eq!(request(&[upgrade, connection]), Some(403));
        assert_eq!(request(&[upgrade, connection, ("x-stream-protocol-version", "v9")]), Some(403));
        // Without a listener, a connection can't be upgraded.
        let accepted = [upgrade, connection, ("x-stream-protocol-version", "v9"), ("x-stream-protocol-version", "v3")];
        assert_eq!(request(&accepted), Some(400));
    }
}
