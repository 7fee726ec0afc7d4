//! Detection of idle connections: those without an open request.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::{sync::watch, time::timeout};

use crate::body::{Body, BoxError};

/// The open requests of a connection. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenRequests(watch::Sender<usize>);

impl OpenRequests {
    /// Counts a request until the returned value is dropped.
    pub(crate) fn open(&self) -> OpenRequest {
        self.0.send_modify(|count| *count += 1);
        OpenRequest(self.0.clone())
    }

    /// Waits until the connection has had no open request for this time.
    pub(crate) async fn idle_for(&self, time: Duration) {
        let mut count = self.0.subscribe();
        loop {
            // `self` holds a sender, so the channel isn't closed.
            if *count.borrow_and_update() > 0 {
                let _ = count.changed().await;
            } else if timeout(time, count.changed()).await.is_err() {
                return;
            }
        }
    }
}

/// An open request of a connection.
#[derive(Debug)]
pub(crate) struct OpenRequest(watch::Sender<usize>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
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
        let (requests, clock) = (OpenRequests::default(), VirtualClock::starting_at(Timestamp::UNIX_EPOCH));
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
