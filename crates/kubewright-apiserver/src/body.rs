//! The body of an answer: whole, or a stream.

use std::{
    fmt,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream::BoxStream};
use http_body::{Frame, SizeHint};

/// Why a stream broke off.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer. A stream is made as it is read, so a slow reader costs no memory.
pub struct Body(Kind);

enum Kind {
    Whole(Option<Bytes>),
    Stream(BoxStream<'static, Result<Bytes, BoxError>>),
}

impl Body {
    /// No content.
    pub fn empty() -> Self {
        Self(Kind::Whole(None))
    }

    /// A body made piece by piece. The reader gets each piece as soon as there is one.
    pub fn stream(pieces: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static) -> Self {
        // A panic while a piece is made breaks off this stream and nothing else.
        let pieces = AssertUnwindSafe(pieces).catch_unwind().map(|piece| {
            piece.unwrap_or_else(|panic| Err(format!("the server panicked: {}", message(&*panic)).into()))
        });
        Self(Kind::Stream(pieces.boxed()))
    }
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("")
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Whole(bytes) => f.debug_tuple("Whole").field(&bytes.as_ref().map_or(0, Bytes::len)).finish(),
            Kind::Stream(_) => f.write_str("Stream"),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(pieces) => pieces.poll_next_unpin(cx).map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}
