//! A stream of bytes in the binary messages of a WebSocket, in which clients send SPDY.

use std::pin::pin;

use bytes::BytesMut;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio_tungstenite::tungstenite::{Message, protocol::frame::coding::CloseCode};
use tokio_util::sync::CancellationToken;

use crate::websocket::{self, Socket};

/// The number of bytes that are kept in each direction.
const BUFFER: usize = 64 << 10;
/// The maximum size of a message to the client.
const CHUNK: usize = 32 << 10;

/// Runs a session on the byte stream of a WebSocket, until either of them ends.
pub(super) async fn serve<F: Future<Output = ()>>(
    socket: Socket,
    closing: &CancellationToken,
    session: impl FnOnce(DuplexStream) -> F,
) {
    let (own, other) = duplex(BUFFER);
    let (mut reader, mut writer) = split(own);
    let (mut sink, mut source) = socket.split();
    let code = {
        let receive = pin!(async {
            while let Some(Ok(message)) = source.next().await {
                match message {
                    Message::Binary(bytes) if writer.write_all(&bytes).await.is_ok() => {}
                    Message::Ping(_) | Message::Pong(_) => {}
                    _ => return,
                }
            }
        });
        let send = async {
            let mut buffer = BytesMut::new();
            loop {
                buffer.reserve(CHUNK);
                match reader.read_buf(&mut buffer).await {
                    Ok(length) if length > 0 => {}
                    _ => return,
                }
                if sink.send(Message::Binary(buffer.split().freeze())).await.is_err() {
                    return;
                }
            }
        };
        let work = pin!(async { tokio::join!(session(other), send) });
        tokio::select! {
            biased;
            () = closing.cancelled() => Some(CloseCode::Away),
            _ = work => Some(CloseCode::Normal),
            () = receive => None,
        }
    };
    if let Some(code) = code
        && let Ok(mut socket) = sink.reunite(source)
    {
        websocket::close(&mut socket, code).await;
    }
}
