//! The messages of a WebSocket (RFC 6455, sections 5 to 7), whose handshake is complete.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{Sink, SinkExt, Stream, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use tokio_websockets::{CloseCode, Config, Error, Limits, Message, ServerBuilder, WebSocketStream};

/// The time that a client has to answer the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of pings after which all answers have to be written before more is read.
const MAX_PINGS: usize = 16;

/// A WebSocket of a client. Pings and close frames are answered while messages are received. After a violation of the
/// protocol, which is an error, nothing more is received or can be sent.
///
/// Both halves of a split socket must be used by the same task.
pub(crate) struct Socket<C = TokioIo<Upgraded>> {
    stream: WebSocketStream<C>,
    /// The number of pings since all answers were written. Without a limit, the answers to a client that sends pings
    /// and reads nothing would fill the memory.
    pings: usize,
}

impl<C: AsyncRead + AsyncWrite + Unpin> Socket<C> {
    /// Returns the WebSocket of a connection. Messages, and the frames of which they consist, are at most `max_message`
    /// bytes long.
    pub(super) fn new(connection: C, max_message: usize) -> Self {
        let limits = Limits::default().max_payload_len(Some(max_message));
        // A message is sent as one frame.
        let config = Config::default().frame_size(usize::MAX);
        let stream = ServerBuilder::new().limits(limits).config(config).serve(connection);
        Self { stream, pings: 0 }
    }

    /// Closes a connection, unless it has been closed. Waits for the client, but not for long.
    pub(crate) async fn close(&mut self, code: CloseCode) {
        if timeout(CLOSE_TIMEOUT, self.answer_close(code)).await.is_err() {
            tracing::debug!("a WebSocket client didn't answer the close frame");
        }
    }

    /// Sends a close frame, and waits until the client has answered it or has closed the connection. Data that the
    /// client has sent is read, since a connection that is closed with unread data is reset, and the close frame could
    /// be lost.
    async fn answer_close(&mut self, code: CloseCode) {
        match self.send(Message::close(Some(code), "")).await {
            // After a close frame or a violation of the protocol, the answer is sent by the next read.
            Ok(()) | Err(Error::AlreadyClosed) => {}
            Err(error) => return tracing::debug!(%error, "failed to close a WebSocket"),
        }
        while let Some(Ok(_)) = self.next().await {}
        let connection = self.stream.get_mut();
        let mut dropped = vec![0; 4 << 10];
        if connection.shutdown().await.is_ok() {
            while connection.read(&mut dropped).await.is_ok_and(|length| length > 0) {}
        }
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> Stream for Socket<C> {
    type Item = Result<Message, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.pings >= MAX_PINGS {
            ready!(self.stream.poll_flush_unpin(context))?;
            self.pings = 0;
        }
        let message = ready!(self.stream.poll_next_unpin(context));
        if let Some(Ok(message)) = &message
            && message.is_ping()
        {
            self.pings += 1;
        }
        Poll::Ready(message)
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> Sink<Message> for Socket<C> {
    type Error = Error;

    fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.stream.poll_ready_unpin(context)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        self.stream.start_send_unpin(message)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.stream.poll_flush_unpin(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.stream.poll_close_unpin(context)
    }
}

/// Returns the code of the close frame after an error; `None` if the connection is gone.
pub(super) fn close_code(error: &Error) -> Option<CloseCode> {
    match error {
        Error::Io(_) | Error::AlreadyClosed => None,
        Error::PayloadTooLong { .. } => Some(CloseCode::MESSAGE_TOO_BIG),
        _ => Some(CloseCode::PROTOCOL_ERROR),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::{duplex, join, simplex};

    use super::*;

    /// Returns a frame as clients send it, with a mask of zeros.
    fn frame(head: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        assert!(length < 126, "a length of one byte");
        [&[head, 0x80 | length, 0, 0, 0, 0], content].concat()
    }

    #[tokio::test]
    async fn masks_are_removed_and_fragments_joined_around_control_frames() {
        let (mut client, connection) = duplex(1 << 10);
        let mut socket = Socket::new(connection, 64);
        let masked = [0x01, 0x82, 1, 2, 3, 4, b'a' ^ 1, b'b' ^ 2];
        let frames = [&masked[..], &frame(0x89, b"ping"), &frame(0x80, b"c"), &frame(0x82, b"")].concat();
        client.write_all(&frames).await.unwrap();
        assert!(socket.next().await.unwrap().unwrap().is_ping());
        assert_eq!(socket.next().await.unwrap().unwrap().as_text(), Some("abc"));
        assert!(socket.next().await.unwrap().unwrap().is_binary());
        assert!(socket.next().now_or_never().is_none());
        let mut answer = [0; 6];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"\x8a\x04ping");
    }

    #[tokio::test]
    async fn pings_are_read_no_faster_than_their_answers() {
        let (input, mut client_output) = simplex(1 << 16);
        let (mut client_input, output) = simplex(100);
        let mut socket = Socket::new(join(input, output), 64);
        let pings = 3 * MAX_PINGS + 1;
        client_output.write_all(&frame(0x89, &[0; 64]).repeat(pings)).await.unwrap();
        let mut received = 0;
        while let Some(message) = socket.next().now_or_never() {
            assert!(message.unwrap().unwrap().is_ping());
            received += 1;
        }
        assert_eq!(received, MAX_PINGS, "the client has read nothing");
        let mut answers = vec![0; pings * 66];
        let read = async { client_input.read_exact(&mut answers).await.unwrap() };
        let receive = async { while socket.next().await.is_some() {} };
        tokio::select! {
            _ = read => {}
            () = receive => panic!("the connection has not ended"),
        }
        assert!(answers.chunks(66).all(|answer| answer.starts_with(&[0x8a, 64])));
    }
}
