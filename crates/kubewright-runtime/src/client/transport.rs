//! Sending one request and reading its whole response.

use std::time::Duration;

use http::{Request, Response, header::RETRY_AFTER};
use http_body_util::BodyExt;
use kube::{
    Client,
    client::Body,
    core::{Status, response::StatusDetails},
};
use thiserror::Error;
use tower::service_fn;

use super::ApiResponse;

/// The timeout of a request. An API server gives up after a minute. Without a timeout, a connection that is dead
/// because a node or router on its path is gone would occupy a worker forever.
const DEADLINE: Duration = Duration::from_secs(90);

/// The error of a request without a response in time.
#[derive(Debug, Error)]
#[error("no answer within {} s", DEADLINE.as_secs())]
struct TimedOut;

/// Sends a request and reads the whole response. The API server may still process a request that times out.
pub(super) async fn send(client: &Client, request: Request<Vec<u8>>) -> Result<ApiResponse, kube::Error> {
    let answer = tokio::time::timeout(DEADLINE, answer(client, request));
    answer.await.unwrap_or_else(|_| Err(kube::Error::Service(Box::new(TimedOut))))
}

/// Returns a client whose requests fail if no response has begun in time, for code that uses kube's API.
pub(crate) fn with_deadline(client: &Client) -> Client {
    let inner = client.clone();
    let send = move |request: Request<Body>| {
        let client = inner.clone();
        async move {
            let response = tokio::time::timeout(DEADLINE, client.send(request)).await;
            response.unwrap_or_else(|_| Err(kube::Error::Service(Box::new(TimedOut))))
        }
    };
    Client::new(service_fn(send), client.default_namespace())
}

async fn answer(client: &Client, request: Request<Vec<u8>>) -> Result<ApiResponse, kube::Error> {
    let (parts, body) = client.send(request.map(Body::from)).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    if parts.status.is_client_error() || parts.status.is_server_error() {
        return Err(kube::Error::Api(refusal(&Response::from_parts(parts, ()), &body).boxed()));
    }
    let text = String::from_utf8(body.into()).map_err(kube::Error::FromUtf8)?;
    Ok(ApiResponse { status: parts.status.as_u16(), text })
}

/// Reads the `Status` of an error response. Proxies and the API server's own request limit respond with plain text and
/// a `Retry-After` header.
fn refusal(head: &Response<()>, body: &[u8]) -> Status {
    let mut status = serde_json::from_slice::<Status>(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        Status::failure(text.trim(), "Unknown").with_code(head.status().as_u16())
    });
    if status.code == 0 {
        // Other JSON, such as a gateway's `{"message": …}`.
        status.code = head.status().as_u16();
    }
    let asked = head.headers().get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.trim().parse::<u32>().ok());
    if let Some(seconds) = asked {
        let details = status.details.get_or_insert_with(|| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        });
        details.retry_after_seconds = details.retry_after_seconds.max(seconds);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_proxies_and_gateways_are_read() {
        let head = |code: u16, wait: &str| {
            Response::builder().status(code).header(RETRY_AFTER, wait).body(()).expect("a response")
        };
        let wait = |status: &Status| status.details.as_ref().map(|details| details.retry_after_seconds);
        let busy = refusal(&head(429, "7"), b"Too many requests, please try again later.\n");
        assert_eq!((busy.code, wait(&busy)), (429, Some(7)));
        assert_eq!(busy.message, "Too many requests, please try again later.");
        let gateway = refusal(&head(504, ""), br#"{"message":"Endpoint request timed out"}"#);
        assert_eq!((gateway.code, gateway.message.as_str()), (504, "Endpoint request timed out"));
        let known = br#"{"kind":"Status","code":503,"message":"gone","details":{"retryAfterSeconds":9}}"#;
        let known = refusal(&head(503, "a while"), known);
        assert_eq!((known.code, known.message.as_str(), wait(&known)), (503, "gone", Some(9)));
    }
}
