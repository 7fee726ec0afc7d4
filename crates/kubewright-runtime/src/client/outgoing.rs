//! What the manager's client does with each request, whoever sends it: names the program, keeps to the rate limit, and
//! logs the warnings in the response.

use std::{sync::Arc, time::Duration};

use http::Request;
use kube::{Client, client::Body};
use kubewright_apimachinery::clock::SharedClock;
use parking_lot::Mutex;
use tower::service_fn;

use super::{
    identity::{agent_header, set_user_agent},
    warnings::WarningLog,
};
use crate::limit::{Bucket, RateLimit};

/// Returns a client with this `User-Agent`, unless a request has its own, which sends requests at most at this rate,
/// watches included.
pub(crate) fn outgoing(client: &Client, agent: &str, limit: Option<RateLimit>, clock: &SharedClock) -> Client {
    let (inner, log, agent) = (client.clone(), WarningLog::default(), agent_header(agent));
    let limiter = limit.map(|limit| Arc::new(Limiter { bucket: Mutex::new(Bucket::new(limit)), clock: clock.clone() }));
    let send = move |mut request: Request<Body>| {
        let (client, log) = (inner.clone(), log.clone());
        set_user_agent(request.headers_mut(), &agent);
        let path = request.uri().path().to_owned();
        // Reserved now, so that requests go out in their order.
        let reservation = limiter.clone().map(Limiter::reserve);
        async move {
            if let Some(reservation) = reservation {
                reservation.elapse().await;
            }
            let answer = client.send(request).await?;
            log.note(&path, answer.headers());
            Ok::<_, kube::Error>(answer)
        }
    };
    Client::new(service_fn(send), client.default_namespace())
}

struct Limiter {
    bucket: Mutex<Bucket>,
    clock: SharedClock,
}

impl Limiter {
    fn reserve(self: Arc<Self>) -> Reservation {
        let pause = self.bucket.lock().reserve(self.clock.monotonic());
        Reservation { limiter: self, pause, is_used: false }
    }
}

/// The token of a request that waits until it may be sent. A request that is dropped before leaves it to others.
struct Reservation {
    limiter: Arc<Limiter>,
    pause: Duration,
    is_used: bool,
}

impl Reservation {
    async fn elapse(mut self) {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
        self.is_used = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_used {
            self.limiter.bucket.lock().give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use jiff::Timestamp;
    use kubewright_apimachinery::clock::VirtualClock;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_cancelled_while_they_wait_leave_the_rate_to_others() {
        let server = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
        let clock: SharedClock = VirtualClock::starting_at(Timestamp::UNIX_EPOCH);
        let limit = RateLimit { per_second: 1.0, burst: 2 };
        let client = outgoing(&Client::new(server, "default"), "test", Some(limit), &clock);
        let send = || client.send(Request::new(Body::empty()));
        for _ in 0..2 {
            send().await.expect("a response");
        }
        for _ in 0..50 {
            timeout(Duration::from_millis(1), send()).await.expect_err("it waits");
        }
        let start = clock.monotonic();
        for _ in 0..2 {
            send().await.expect("a response");
        }
        let waited = clock.monotonic() - start;
        assert!((1900..=2000).contains(&waited.as_millis()), "{waited:?}");
    }
}
