//! The tower service between client and server.

use std::io;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::{Client, client::Body};
use serde_json::json;
use tokio::time::sleep;
use tower::{BoxError, Service, service_fn};

use super::{Action, ApiRequest, Faults, ResponseBody, Verb, opened, watch};

type FaultyResponse = Response<ResponseBody>;

pub(super) fn service(
    faults: Faults,
    server: Client,
) -> impl Service<Request<Body>, Response = FaultyResponse, Error = BoxError, Future: Send + 'static> + Clone + Send + 'static
{
    service_fn(move |request: Request<Body>| {
        let (faults, server) = (faults.clone(), server.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let about = ApiRequest::parse(&head.method, &head.uri, &body);
            let request = Request::from_parts(head, Body::from(body.to_vec()));
            let Some(about) = about else { return send(&server, request).await };
            let (number, action) = faults.admit(&about);
            let answer = match action {
                None => send(&server, request).await,
                Some(action) if about.verb == Verb::Watch && !action.is_whole() => {
                    let answer = send(&server, request).await?;
                    Ok(if answer.status().is_success() { answer.map(|body| watch::body(action, body)) } else { answer })
                }
                Some(action) => meet(action, &server, request).await,
            }?;
            faults.answered(number, answer.status().as_u16());
            Ok(answer)
        }
    })
}

async fn send(server: &Client, request: Request<Body>) -> Result<FaultyResponse, BoxError> {
    let answer = server.send(request).await?;
    Ok(answer.map(|body| body.map_err(BoxError::from).boxed_unsync()))
}

impl Action {
    /// Returns whether the fault applies to a request as a whole, even to that of a watch.
    fn is_whole(&self) -> bool {
        matches!(self, Self::Refuse { .. } | Self::LoseRequest | Self::LoseAnswer)
    }
}

async fn meet(action: Action, server: &Client, request: Request<Body>) -> Result<FaultyResponse, BoxError> {
    match action {
        Action::Refuse { code, reason, message, retry_after } => refuse(code, &reason, &message, retry_after),
        Action::LoseRequest => Err(lost()),
        Action::LoseAnswer => {
            // The server has executed the request once its response is complete.
            send(server, request).await?.into_body().collect().await?;
            Err(lost())
        }
        Action::Delay(by) => {
            sleep(by).await;
            send(server, request).await
        }
        Action::Hold(gate) => {
            opened(gate).await;
            send(server, request).await
        }
        Action::CutAfter(_) | Action::Expire | Action::Double => send(server, request).await,
    }
}

fn lost() -> BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, "scripted fault: the connection is lost").into()
}

fn refuse(code: u16, reason: &str, message: &str, retry_after: Option<u32>) -> Result<FaultyResponse, BoxError> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
        "details": { "retryAfterSeconds": retry_after.unwrap_or_default() },
    });
    let mut answer = Response::builder().status(code).header("content-type", "application/json");
    if let Some(seconds) = retry_after {
        answer = answer.header("retry-after", seconds);
    }
    let body = Full::new(Bytes::from(status.to_string()));
    Ok(answer.body(body.map_err(|never| match never {}).boxed_unsync())?)
}
