//! Response bodies.

use std::{
    fmt,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use http_body::{Frame, SizeHint};

/// The error of a stream.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response. A stream is produced while it is read, so a slow reader costs no memory.
pub struct Body {
    kind: Kind,
    /// Dropped together with the body.
    guard: Option<Box<dyn Send>>,
}

/// The chunks of a body.
pub(crate) type Chunks = BoxStream<'static, Result<Bytes, BoxError>>;

enum Kind {
    Whole(Option<Bytes>),
    Stream(Chunks),
}

impl Body {
    /// Returns an empty body.
    pub fn empty() -> Self {
        Kind::Whole(None).into()
    }

    /// Keeps a value as long as the body exists, with those that it keeps already.
    pub(crate) fn with_guard(mut self, guard: impl Send + 'static) -> Self {
        self.guard = Some(match self.guard.take() {
            Some(earlier) => Box::new((earlier, guard)),
            None => Box::new(guard),
        });
        self
    }

    /// Returns the bytes of a body that isn't a stream.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.kind {
            Kind::Whole(bytes) => bytes.as_ref(),
            Kind::Stream(_) => None,
        }
    }

    /// Returns the body with each chunk replaced.
    pub(crate) fn map_chunks(self, mut replace: impl FnMut(Bytes) -> Bytes + Send + 'static) -> Self {
        let kind = match self.kind {
            Kind::Whole(bytes) => Kind::Whole(bytes.map(replace)),
            Kind::Stream(chunks) => Kind::Stream(chunks.map(move |chunk| chunk.map(&mut replace)).boxed()),
        };
        Self { kind, guard: self.guard }
    }

    /// Returns the body with its chunks replaced. A body that exists as a whole has chunks of this size.
    pub(crate) fn map_stream(self, size: usize, replace: impl FnOnce(Chunks) -> Chunks) -> Self {
        let chunks = match self.kind {
            Kind::Stream(chunks) => chunks,
            Kind::Whole(bytes) => {
                let mut rest = bytes.unwrap_or_default();
                let next = move || Some(rest.split_to(rest.len().min(size))).filter(|chunk| !chunk.is_empty());
                stream::iter(std::iter::from_fn(next).map(Ok)).boxed()
            }
        };
        Self { kind: Kind::Stream(replace(chunks)), guard: self.guard }
    }

    /// Returns a streamed body. The reader gets each chunk as soon as it is produced. A panic of the stream ends only
    /// this body.
    pub fn stream(chunks: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static) -> Self {
        let chunks = AssertUnwindSafe(chunks).catch_unwind().map(|chunk| {
            chunk.unwrap_or_else(|panic| Err(format!("the server panicked: {}", panic_message(&*panic)).into()))
        });
        Kind::Stream(chunks.boxed()).into()
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("")
}

impl From<Kind> for Body {
    fn from(kind: Kind) -> Self {
        Self { kind, guard: None }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Kind::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())).into()
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
        match &self.kind {
            Kind::Whole(bytes) => f.debug_tuple("Whole").field(&bytes.as_ref().map_or(0, Bytes::len)).finish(),
            Kind::Stream(_) => f.write_str("Stream"),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.kind {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(chunks) => chunks.poll_next_unpin(cx).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.kind, Kind::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}
