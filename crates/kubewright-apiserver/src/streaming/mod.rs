//! Streams in both directions, over connections that actions upgrade: those of a command (`pods/exec`, `pods/attach`)
//! and of ports (`pods/portforward`). What the kubelet of another node serves is relayed to it (`remote`).
//!
//! Clients multiplex the streams of a connection in one of two ways: as numbered channels of a WebSocket (`channels`),
//! or as streams of SPDY/3.1 (`spdy`), on the connection itself or in a WebSocket (`tunnel`). The protocols are those
//! of `k8s.io/cri-streaming` and `k8s.io/streaming`. What is received and what is to be sent passes through short
//! queues, so that a slow side slows down the other one.

mod channels;
mod command;
mod ports;
mod remote;
mod spdy;
mod tunnel;

use bytes::Bytes;
use tokio::sync::mpsc;

pub(crate) use self::{
    command::{CLOSABLE, serve_closable},
    ports::serve_tunnel,
    remote::{PROTOCOLS, execute},
    spdy::{SPDY, SPDY_PROTOCOL},
};
pub use self::{
    command::{CommandError, CommandStreams, StreamOptions, TerminalSize, TerminalSizes, serve_command},
    ports::{PortStreams, serve_ports},
};

/// The number of messages in a queue.
const QUEUE: usize = 4;

/// A frame to send.
#[derive(Debug)]
enum Frame {
    /// Data of a stream.
    Data(u32, Bytes),
    /// The end of a stream.
    End(u32),
    /// The opening of a stream.
    Open(u32, spdy::Headers),
    /// The acceptance of a stream.
    Accept(u32),
    /// The refusal of a stream.
    Refuse(u32),
    /// The answer to a ping.
    Pong(u32),
    /// The last frame.
    Last,
}

/// A stream to the client.
#[derive(Clone, Debug)]
pub struct Output {
    stream: u32,
    queue: mpsc::Sender<Frame>,
}

impl Output {
    /// Sends a chunk. Waits while the client doesn't read.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn send(&self, chunk: Bytes) -> std::io::Result<()> {
        let sent = self.queue.send(Frame::Data(self.stream, chunk)).await;
        sent.map_err(|_| std::io::Error::from(std::io::ErrorKind::BrokenPipe))
    }

    /// Ends the stream.
    async fn end(&self) {
        // A client that is gone doesn't need to know.
        let _gone = self.queue.send(Frame::End(self.stream)).await;
    }
}
