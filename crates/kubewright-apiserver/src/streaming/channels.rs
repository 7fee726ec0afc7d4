//! Streams as channels of a WebSocket: the first byte of each message is the number of its channel.

use std::pin::pin;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_websockets::{CloseCode, Message};

use super::Frame;
use crate::websocket::Socket;

/// The maximum size of a message of a client.
pub(super) const MAX_MESSAGE: usize = 8 << 20;

/// The encoding of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// A byte, and the content.
    Binary,
    /// A digit, and the content in Base64.
    Base64,
}

impl Framing {
    /// Returns the encoding of a subprotocol.
    pub(super) fn of(protocol: &str) -> Self {
        if protocol.contains("base64") { Self::Base64 } else { Self::Binary }
    }

    fn encode(self, channel: u32, bytes: &[u8]) -> Message {
        if self == Self::Base64 {
            return Message::text(format!("{channel}{}", STANDARD.encode(bytes)));
        }
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(u8::try_from(channel).unwrap_or(u8::MAX));
        message.extend_from_slice(bytes);
        Message::binary(message)
    }

    /// Returns the channel and the content of a message; `None` for control frames and malformed messages.
    fn decode(self, message: Message) -> Option<(u8, Bytes)> {
        if !message.is_binary() && !message.is_text() {
            return None;
        }
        let bytes = Bytes::from(message.into_payload());
        let first = *bytes.first()?;
        let rest = bytes.slice(1..);
        match self {
            Self::Binary => Some((first, rest)),
            Self::Base64 => Some((first.checked_sub(b'0')?, STANDARD.decode(rest).ok()?.into())),
        }
    }
}

/// The receiving ends of a client's channels.
pub(super) trait Receive: Send {
    /// Processes a message. Waits while its receiver is busy.
    fn receive(&mut self, channel: u8, bytes: Bytes) -> impl Future<Output = ()> + Send;
}

/// Serves a connection until the work is done and its last frame is sent, or until the client disconnects. The first
/// messages show the client that the connection is established.
pub(super) async fn serve(
    socket: Socket,
    closing: &CancellationToken,
    framing: Framing,
    first: Vec<(u32, Bytes)>,
    frames: mpsc::Receiver<Frame>,
    input: impl Receive,
    work: impl Future<Output = ()>,
) {
    let (mut sink, mut source) = socket.split();
    let end = {
        let work = pin!(async { tokio::join!(work, write(&mut sink, frames, framing, first)).1 });
        let read = pin!(read(&mut source, input, framing));
        tokio::select! {
            biased;
            () = closing.cancelled() => Some(CloseCode::GOING_AWAY),
            written = work => written.then_some(CloseCode::NORMAL_CLOSURE),
            () = read => None,
        }
    };
    if let Some(code) = end
        && let Ok(mut socket) = sink.reunite(source)
    {
        socket.close(code).await;
    }
}

/// Sends frames. Returns false if the connection fails.
async fn write(
    sink: &mut SplitSink<Socket, Message>,
    mut frames: mpsc::Receiver<Frame>,
    framing: Framing,
    first: Vec<(u32, Bytes)>,
) -> bool {
    for (channel, bytes) in first {
        if sink.send(framing.encode(channel, &bytes)).await.is_err() {
            return false;
        }
    }
    while let Some(frame) = frames.recv().await {
        match frame {
            Frame::Data(channel, bytes) => {
                if let Err(error) = sink.send(framing.encode(channel, &bytes)).await {
                    tracing::debug!(%error, "failed to send to a WebSocket");
                    return false;
                }
            }
            Frame::Last => return true,
            // Channels of a server are not closed one by one.
            Frame::End(_) | Frame::Open(..) | Frame::Accept(_) | Frame::Refuse(_) | Frame::Pong(_) => {}
        }
    }
    true
}

/// Receives messages until the client disconnects.
async fn read(source: &mut SplitStream<Socket>, mut input: impl Receive, framing: Framing) {
    while let Some(message) = source.next().await {
        match message {
            Ok(message) => {
                if let Some((channel, bytes)) = framing.decode(message) {
                    input.receive(channel, bytes).await;
                }
            }
            Err(error) => return tracing::debug!(%error, "a WebSocket failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_begin_with_their_channel() {
        let binary = Framing::of("v5.channel.k8s.io");
        let sent = binary.encode(1, b"a");
        assert_eq!((sent.is_binary(), &**sent.as_payload()), (true, &b"\x01a"[..]));
        assert_eq!(binary.decode(Message::text("\0a")), Some((0, Bytes::from("a"))));
        assert_eq!(binary.decode(Message::binary(vec![255, 0])), Some((255, Bytes::from(vec![0]))));
        assert_eq!(binary.decode(Message::binary(Vec::new())), None);
        assert_eq!(binary.decode(Message::ping(Bytes::new())), None);
        let base64 = Framing::of("v4.base64.channel.k8s.io");
        assert_eq!(base64.encode(3, b"a").as_text(), Some("3YQ=="));
        assert_eq!(base64.decode(Message::text("0YQ==")), Some((0, Bytes::from("a"))));
        assert_eq!(base64.decode(Message::text("0?")), None);
    }
}
