//! What the manager's client does with each request, whoever sends it: names the program, keeps to the rate limit, and
//! logs the warnings in the response.

use std::sync::Arc;

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
    let bucket = limit.map(|limit| Arc::new((Mutex::new(Bucket::new(limit)), clock.clone())));
    let send = move |mut request: Request<Body>| {
        let (client, log) = (inner.clone(), log.clone());
        set_user_agent(request.headers_mut(), &agent);
        let path = request.uri().path().to_owned();
        // Reserved now, so that requests go out in their order.
        let pause = bucket.as_ref().map(|bucket| bucket.0.lock().reserve(bucket.1.monotonic())).unwrap_or_default();
        async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let answer = client.send(request).await?;
            log.note(&path, answer.headers());
            Ok::<_, kube::Error>(answer)
        }
    };
    Client::new(service_fn(send), client.default_namespace())
}
