//! Detection of idle connections: those without an open request.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use kubewright_apimachinery::clock::SharedClock;
use tokio::time::sleep;

use crate::body::{Body, BoxError};

/// The open requests of a connection. Clones share the count.
///
/// A request only counts itself. Waking a waiting task instead would have hyper poll the connection twice more for each
/// request.
#[derive(Clone, Debug)]
pub(crate) struct OpenRequests(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: SharedClock,
    open: AtomicUsize,
    /// The monotonic time at which the last request ended, or the connection began, in milliseconds.
    ended: AtomicU64,
}

impl Shared {
    fn end(&self) {
        let now = u64::try_from(self.clock.monotonic().as_millis()).unwrap_or(u64::MAX);
        self.ended.store(now, Ordering::Release);
    }
}

impl OpenRequests {
    /// Creates the count of a connection that begins now.
    pub(crate) fn new(clock: SharedClock) -> Self {
        let shared = Shared { clock, open: AtomicUsize::new(0), ended: AtomicU64::new(0) };
        shared.end();
        Self(Arc::new(shared))
    }

    /// Counts a request until the returned value is dropped.
    pub(crate) fn open(&self) -> OpenRequest {
        self.0.open.fetch_add(1, Ordering::AcqRel);
        OpenRequest(self.0.clone())
    }

    /// Waits until the connection has had no open request for this time.
    pub(crate) async fn idle_for(&self, time: Duration) {
        loop {
            // A request that is open now, or will be, ends later than now, so `time` has not passed since then after
            // this sleep.
            let rest = if self.0.open.load(Ordering::Acquire) > 0 {
                time
            } else {
                let due = Duration::from_millis(self.0.ended.load(Ordering::Acquire)).saturating_add(time);
                due.saturating_sub(self.0.clock.monotonic())
            };
            if rest.is_zero() {
                return;
            }
            sleep(rest).await;
        }
    }
}

/// An open request of a connection.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<Shared>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.end();
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The body of a response, whose request is open until the body is dropped.
#[derive(Debug)]
pub(crate) struct OpenBody {
    body: Body,
    _request: OpenRequest,
}

impl OpenBody {
    pub(crate) fn new(body: Body, request: OpenRequest) -> Self {
        Self { body, _request: request }
    }
}

impl http_body::Body for OpenBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kubewright_apimachinery::clock::{Clock, VirtualClock};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_counts_from_the_end_of_the_last_request() {
        let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let shared: SharedClock = clock.clone();
        let requests = OpenRequests::new(shared);
        let start = clock.monotonic();
        let watch = requests.open();
        let idle = tokio::spawn({
            let requests = requests.clone();
            async move { requests.idle_for(Duration::from_secs(10)).await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!idle.is_finished(), "a request is open");
        drop(watch);
        tokio::time::sleep(Duration::from_secs(9)).await;
        drop(requests.open());
        idle.await.unwrap();
        assert_eq!((clock.monotonic() - start).as_secs(), 79);
    }
}
