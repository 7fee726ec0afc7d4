//! Sends the small writes of an HTTP/2 connection together.
//!
//! An event for a hundred watches of one connection is a hundred frames, and `h2` writes each frame of more than 256
//! bytes by itself: a TLS record and a system call for each. A batch collects what a connection writes. It is sent
//! after the other tasks of the thread have run once, since these may be about to write to the connection, too.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};

/// The size of a batch in bytes, which is that of the largest TLS record. What exceeds it is sent at once.
const CAPACITY: usize = 16 << 10;

/// The stream of a connection.
pub(crate) enum Transport<S> {
    /// Writes are sent at once, as suits HTTP/1.1, whose responses are written in one piece.
    Direct(S),
    /// Writes are sent by [`WriteBatch::drive`].
    Batched(Arc<Mutex<BatchedStream<S>>>),
}

/// The writes of a connection that are to be sent together.
pub(crate) struct WriteBatch<S>(Option<Arc<Mutex<BatchedStream<S>>>>);

/// The buffered stream that a connection and its batch share.
pub(crate) struct BatchedStream<S> {
    stream: BufWriter<S>,
    state: BatchState,
}

/// The state of a batch.
#[derive(Clone, Copy, PartialEq)]
enum BatchState {
    /// Everything is sent.
    Sent,
    /// Something was written. Other tasks run before it is sent.
    Written,
    /// The other tasks have run.
    Due,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport<S> {
    /// Returns the stream of a connection, and its batch. If it isn't `batched`, its writes are sent at once.
    pub(crate) fn new(stream: S, batched: bool) -> (Self, WriteBatch<S>) {
        if !batched {
            return (Self::Direct(stream), WriteBatch(None));
        }
        let stream = BufWriter::with_capacity(CAPACITY, stream);
        let shared = Arc::new(Mutex::new(BatchedStream { stream, state: BatchState::Sent }));
        (Self::Batched(shared.clone()), WriteBatch(Some(shared)))
    }
}

impl<S: AsyncWrite + Unpin> BatchedStream<S> {
    /// Returns the stream for a write.
    fn writer(&mut self) -> Pin<&mut BufWriter<S>> {
        if self.state == BatchState::Sent {
            self.state = BatchState::Written;
        }
        Pin::new(&mut self.stream)
    }

    /// Sends what was written, after the other tasks have run once.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state == BatchState::Written {
            self.state = BatchState::Due;
            // A task that wakes itself runs again after those that wait for its thread.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.state == BatchState::Due {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.state = BatchState::Sent;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> WriteBatch<S> {
    /// Runs the future of the connection, and sends what it writes.
    ///
    /// # Errors
    /// Those of the connection and of the stream.
    pub(crate) async fn drive<F, E>(&self, mut connection: Pin<&mut F>) -> Result<(), E>
    where
        F: Future<Output = Result<(), E>>,
        E: From<io::Error>,
    {
        poll_fn(|cx| {
            let ended = connection.as_mut().poll(cx);
            match &self.0 {
                Some(shared) if ended.is_pending() => match shared.lock().poll_send(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
                    _ => Poll::Pending,
                },
                _ => ended,
            }
        })
        .await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Transport<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Direct(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Batched(shared) => Pin::new(&mut shared.lock().stream).poll_read(cx, buf),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Transport<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Direct(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Batched(shared) => shared.lock().writer().poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Direct(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Batched(shared) => shared.lock().writer().poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing in a batch, which is sent later.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Direct(stream) => Pin::new(stream).poll_flush(cx),
            Self::Batched(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Direct(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Batched(shared) => Pin::new(&mut shared.lock().stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt, sync::mpsc};

    use super::*;

    /// A stream that records the sizes of writes, and whose flushes have to wait for some time, as with a full socket.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Recorded>>);

    #[derive(Default)]
    struct Recorded {
        writes: Vec<usize>,
        pending_flushes: usize,
        flushed: bool,
    }

    impl AsyncRead for Recorder {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Recorder {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let mut recorded = self.0.lock();
            recorded.writes.push(buf.len());
            recorded.flushed = false;
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let mut recorded = self.0.lock();
            if recorded.pending_flushes > 0 {
                recorded.pending_flushes -= 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            recorded.flushed = true;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Lets `tasks` tasks send a frame of 300 bytes each to a connection, and returns what was written to its stream.
    async fn written(tasks: usize, batched: bool, pending_flushes: usize) -> Recorded {
        let recorder = Recorder::default();
        recorder.0.lock().pending_flushes = pending_flushes;
        let (mut transport, batch) = Transport::new(recorder.clone(), batched);
        let (frames, mut received) = mpsc::unbounded_channel::<Vec<u8>>();
        let connection = tokio::spawn(async move {
            let connection = async move {
                while let Some(frame) = received.recv().await {
                    transport.write_all(&frame).await?;
                    transport.flush().await?;
                }
                // A connection with HTTP/2 stays open.
                std::future::pending::<io::Result<()>>().await
            };
            tokio::pin!(connection);
            batch.drive(connection).await
        });
        for _ in 0..tasks {
            let frames = frames.clone();
            tokio::spawn(async move { frames.send(vec![0; 300]) });
        }
        drop(frames);
        // The tasks of this thread take turns, so this is more than any of them needs.
        for _ in 0..4 * tasks + 20 {
            tokio::task::yield_now().await;
        }
        connection.abort();
        std::mem::take(&mut *recorder.0.lock())
    }

    #[tokio::test]
    async fn frames_of_several_tasks_are_sent_together() {
        let recorded = written(20, true, 0).await;
        assert_eq!(recorded.writes, [20 * 300]);
        assert!(recorded.flushed);
    }

    #[tokio::test]
    async fn what_exceeds_a_batch_is_sent_at_once() {
        let recorded = written(100, true, 0).await;
        assert_eq!(recorded.writes, [54 * 300, 46 * 300]);
        assert!(recorded.flushed);
    }

    #[tokio::test]
    async fn a_stream_that_has_to_wait_is_flushed_later() {
        let recorded = written(2, true, 3).await;
        assert_eq!((recorded.writes, recorded.flushed), (vec![600], true));
    }

    #[tokio::test]
    async fn a_stream_without_a_batch_gets_each_write() {
        assert_eq!(written(3, false, 0).await.writes, [300, 300, 300]);
    }
}
