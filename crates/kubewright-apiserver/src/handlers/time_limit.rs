//! The time that a client gives a request, by the parameter `timeout`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header, request::Parts};
use kubewright_apimachinery::{duration, status::Status};

use super::{exchange, query::Query, route::Route};
use crate::response::{self, Response};

/// The longest time of a request. Longer ones that clients give have no effect.
const MAX: Duration = Duration::from_secs(60);

/// Returns the time after which a request is given up; `None` if the client gives none, or the request lasts as long as
/// the client wants.
///
/// # Errors
/// Returns 400 if the time is malformed.
pub(super) fn of(parts: &Parts, route: &Route) -> Result<Option<Duration>, Status> {
    let Some(text) = parts.uri.query().filter(|query| query.contains("timeout=")) else { return Ok(None) };
    let query = Query::parse(Some(text));
    let Some(text) = query.get("timeout").filter(|_| !exchange::lasts(parts, route)) else { return Ok(None) };
    let nanoseconds = duration::parse(text)
        .map_err(|why| Status::bad_request(format!("invalid timeout specified in the request URL - {why}")))?;
    let limit = u64::try_from(nanoseconds).map(Duration::from_nanos).unwrap_or_default();
    Ok(Some(limit).filter(|limit| !limit.is_zero() && *limit < MAX))
}

/// Returns the answer to a request whose time is over.
pub(super) fn exceeded() -> Response {
    let message = "Timeout: request did not complete within the allotted timeout";
    let mut status = Status::new(504, "Timeout", message).to_json();
    if let Some(fields) = status.as_object_mut() {
        // As in Kubernetes, whose handler knows no versions.
        fields.retain(|field, _| field != "kind" && field != "apiVersion");
    }
    let body = Bytes::from(format!("{status}\n"));
    let mut response = response::bytes(StatusCode::GATEWAY_TIMEOUT, body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
