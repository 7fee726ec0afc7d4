//! The streams of running containers.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use kubewright_apiserver::streaming::{CommandError, CommandStreams};
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::broadcast,
};

use super::{RunningContainer, command::feed};
use crate::node::{
    log::Stream,
    process_streams::{Reader, Stdin},
};

/// Reads the output of a container, and shows it to attached clients.
pub(crate) struct Tee {
    pub(crate) reader: Reader,
    pub(crate) stream: Stream,
    pub(crate) output: broadcast::Sender<(Stream, Bytes)>,
}

impl AsyncRead for Tee {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(context, buffer))?;
        let new = &buffer.filled()[before..];
        if !new.is_empty() && self.output.receiver_count() > 0 {
            // The last client may have left in this moment.
            let _unread = self.output.send((self.stream, Bytes::copy_from_slice(new)));
        }
        Poll::Ready(Ok(()))
    }
}

/// The input of a container, which goes back to it when the client disconnects.
struct BorrowedStdin {
    container: Arc<RunningContainer>,
    stdin: Option<Stdin>,
    /// Whether the input ends with the client.
    ends: bool,
}

impl Drop for BorrowedStdin {
    fn drop(&mut self) {
        let stdin = self.stdin.take().filter(|_| !self.ends);
        if stdin.is_some() {
            *self.container.stdin.lock() = stdin;
        }
    }
}

/// Connects a client to a container until the container ends. If the container's input stays open for other clients,
/// the connection also ends with the client's input, as in containerd. Chunks of output that the client is too slow for
/// are left out.
pub(super) async fn attach(
    container: Arc<RunningContainer>,
    mut output: broadcast::Receiver<(Stream, Bytes)>,
    streams: CommandStreams,
) -> Result<(), CommandError> {
    let CommandStreams { stdin, stdout, stderr, resize } = streams;
    let wants_input = stdin.is_some() || resize.is_some();
    let own = if wants_input { container.stdin.lock().take() } else { None };
    let ends = stdin.is_some() && container.stdin_once && own.as_ref().is_none_or(|own| !own.is_terminal());
    let mut borrowed = BorrowedStdin { container: container.clone(), stdin: own, ends };
    let show = async {
        loop {
            let next = tokio::select! {
                biased;
                next = output.recv() => next,
                // All output was recorded before.
                () = container.ended.cancelled() => match output.try_recv() {
                    Ok(next) => Ok(next),
                    Err(_) => return,
                },
            };
            let target = match &next {
                Ok((Stream::Stdout, _)) => &stdout,
                Ok((Stream::Stderr, _)) => &stderr,
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return,
            };
            if let (Some(target), Ok((_, chunk))) = (target, next)
                && target.send(chunk).await.is_err()
            {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = show => Ok(()),
        () = feed(&mut borrowed.stdin, stdin, resize, ends) => Ok(()),
    }
}
