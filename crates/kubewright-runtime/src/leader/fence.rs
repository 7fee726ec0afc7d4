//! A guard of writes: none is sent once the lease has expired.
//!
//! Work is cancelled when its lease is lost, but a process that was stopped, such as a frozen container, may continue
//! in the middle of it before any timer has fired. So each write checks the clock before it is sent. This doesn't help
//! on a machine that was suspended: its monotonic clock stood still too.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Method, Request};
use kube::{Client, client::Body};
use kubewright_apimachinery::clock::SharedClock;
use thiserror::Error;
use tower::{BoxError, service_fn};

/// The time until which a lease is held, by the monotonic clock. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fence(Arc<AtomicU64>);

/// A write that was not sent.
#[derive(Debug, Error)]
#[error("not sent: the lease of this replica has expired, and another may be active")]
struct Fenced;

impl Fence {
    /// Sets the time until which the lease is held; `None` if it isn't held.
    pub(crate) fn set(&self, until: Option<Duration>) {
        let nanoseconds = until.map_or(0, |until| u64::try_from(until.as_nanos()).unwrap_or(u64::MAX));
        self.0.store(nanoseconds, Ordering::Release);
    }

    pub(crate) fn stands(&self, now: Duration) -> bool {
        now < Duration::from_nanos(self.0.load(Ordering::Acquire))
    }

    /// Returns a client that refuses writes while the lease isn't held.
    pub(crate) fn guard(&self, client: &Client, clock: SharedClock) -> Client {
        let (fence, guarded) = (self.clone(), client.clone());
        let send = move |request: Request<Body>| {
            let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
            let may_go = is_read || fence.stands(clock.monotonic());
            let client = guarded.clone();
            async move { if may_go { Ok(client.send(request).await?) } else { Err(BoxError::from(Fenced)) } }
        };
        Client::new(service_fn(send), client.default_namespace())
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use http_body_util::BodyExt;
    use jiff::Timestamp;
    use kubewright_apimachinery::clock::{Clock, VirtualClock};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_end_with_the_lease_and_reads_go_on() {
        let clock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let server = service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(Response::new(Body::empty())) });
        let fence = Fence::default();
        let client = fence.guard(&Client::new(server, "default"), clock.clone());
        let send = async |method: Method| {
            let request = Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
            match client.send(request).await {
                Ok(answer) => Ok(answer.into_body().collect().await.unwrap().to_bytes()),
                Err(error) => Err(crate::client::explain(&error)),
            }
        };
        assert!(send(Method::GET).await.is_ok());
        assert!(send(Method::POST).await.unwrap_err().contains("has expired"));
        fence.set(Some(clock.monotonic() + Duration::from_secs(10)));
        assert!(send(Method::PATCH).await.is_ok());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(send(Method::DELETE).await.is_err() && send(Method::GET).await.is_ok());
        fence.set(None);
        assert!(send(Method::PUT).await.is_err());
    }
}
