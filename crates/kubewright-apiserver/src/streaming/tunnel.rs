//! A stream of bytes in the binary messages of a WebSocket, in which clients send SPDY.

use std::pin::pin;

use bytes::BytesMut;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio_util::sync::CancellationToken;
use tokio_websockets::{CloseCode, Message};

use crate::websocket::Socket;

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
                let ended = if message.is_binary() {
                    writer.write_all(message.as_payload()).await.is_err()
                } else {
                    !message.is_ping() && !message.is_pong()
                };
                if ended {
                    return;
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
                if sink.send(Message::binary(buffer.split())).await.is_err() {
                    return;
                }
            }
        };
        let work = pin!(async { tokio::join!(session(other), send) });
        tokio::select! {
            biased;
            () = closing.cancelled() => Some(CloseCode::GOING_AWAY),
            _ = work => Some(CloseCode::NORMAL_CLOSURE),
            () = receive => None,
        }
    };
    if let Some(code) = code
        && let Ok(mut socket) = sink.reunite(source)
    {
        socket.close(code).await;
    }
}
