//! gRPC probes: a call of `grpc.health.v1.Health/Check` over HTTP/2 without TLS
//! (<https://github.com/grpc/grpc/blob/master/doc/health-checking.md>).
//!
//! The messages of the protocol have one field each, so they are encoded and decoded here. The texts of failures are
//! the kubelet's, as users know them from events.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{probe::ProbeResult, prober::PROBE_AGENT};

/// The time between two attempts to connect, as in Go's library.
const RETRY: Duration = Duration::from_secs(1);
/// The maximum length of an answer, in bytes.
const ANSWER: usize = 64 << 10;
/// The length of the header of a message: a flag, and the length of the message.
const HEADER: usize = 5;

const UNKNOWN: u32 = 2;
const DEADLINE_EXCEEDED: u32 = 4;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;

/// The names of the status codes, by number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// The states of a service, by number.
const STATES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
const SERVING: u64 = 1;

/// The status of a call that failed.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    code: u32,
    message: String,
}

/// Asks the server at `place` (host and port) for the health of a service. An empty name stands for the whole server.
pub(super) async fn check(place: &str, service: &str, limit: Duration) -> ProbeResult {
    let connected = AtomicBool::new(false);
    let called = timeout(limit, async {
        loop {
            // As with Go's library, a server that can't be reached or doesn't speak HTTP/2 is tried again until the
            // time is up.
            let Ok(stream) = TcpStream::connect(place).await else {
                sleep(RETRY).await;
                continue;
            };
            match call(stream, place, service, &connected).await {
                Some(result) => return result,
                None => sleep(RETRY).await,
            }
        }
    })
    .await;
    let shown = go_duration(limit);
    ProbeResult::Failure(match called {
        Ok(Ok(SERVING)) => return ProbeResult::Success,
        Ok(Ok(state)) => {
            let name = usize::try_from(state).ok().and_then(|state| STATES.get(state));
            let name = name.map_or_else(|| state.to_string(), |name| (*name).to_owned());
            format!("service unhealthy (responded with {name:?})")
        }
        Ok(Err(Status { code: UNIMPLEMENTED, message })) => {
            format!("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}")
        }
        Ok(Err(Status { code: DEADLINE_EXCEEDED, .. })) => {
            format!("timeout: health rpc did not complete within {shown}")
        }
        Ok(Err(Status { code, message })) => {
            let name = usize::try_from(code).ok().and_then(|code| CODES.get(code));
            let name = name.map_or_else(|| format!("Code({code})"), |name| (*name).to_owned());
            format!("error: health rpc probe failed: rpc error: code = {name} desc = {message}")
        }
        Err(_) if connected.load(Ordering::Relaxed) => format!("timeout: health rpc did not complete within {shown}"),
        Err(_) => {
            format!("timeout: failed to connect service {place:?} within {shown}: context deadline exceeded")
        }
    })
}

/// Sends the request on a new connection. The result is the state of the service, or `None` if the server doesn't speak
/// HTTP/2. `connected` is set once it is known to.
async fn call(stream: TcpStream, place: &str, service: &str, connected: &AtomicBool) -> Option<Result<u64, Status>> {
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
    let request = Request::post(format!("http://{place}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", PROBE_AGENT)
        .body(Full::new(encode(service)))
        .ok()?;
    let exchange = async {
        sender.ready().await.ok()?;
        connected.store(true, Ordering::Relaxed);
        let answer = sender.send_request(request).await.ok()?;
        let (head, body) = answer.into_parts();
        if let Some(status) = status(&head.headers) {
            return Some(Err(status));
        }
        if head.status != StatusCode::OK {
            return Some(Err(of_http(head.status)));
        }
        let body = match Limited::new(body, ANSWER).collect().await {
            Ok(body) => body,
            Err(error) => return Some(Err(Status { code: INTERNAL, message: error.to_string() })),
        };
        let trailers = body.trailers().and_then(status);
        Some(match trailers {
            Some(Status { code: 0, .. }) => decode(&body.to_bytes()).ok_or_else(|| Status {
                code: INTERNAL,
                message: "the answer is not a HealthCheckResponse".to_owned(),
            }),
            Some(status) => Err(status),
            None => {
                Err(Status { code: INTERNAL, message: "server closed the stream without sending trailers".to_owned() })
            }
        })
    };
    tokio::pin!(exchange, connection);
    let answer = tokio::select! {
        biased;
        answer = &mut exchange => answer,
        _ended = &mut connection => exchange.await,
    };
    if answer.is_none() {
        connected.store(false, Ordering::Relaxed);
    }
    answer
}

/// Returns the status in headers or trailers.
fn status(headers: &HeaderMap) -> Option<Status> {
    let code = headers.get("grpc-status")?;
    let code = code.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(UNKNOWN);
    let message = headers.get("grpc-message").map(|message| decode_message(message.as_bytes())).unwrap_or_default();
    Some(Status { code, message })
}

/// Returns the status of an answer that isn't gRPC's
/// (<https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>).
fn of_http(http: StatusCode) -> Status {
    let code = match http.as_u16() {
        400 => INTERNAL,
        401 => 16,
        403 => 7,
        404 => UNIMPLEMENTED,
        429 | 502..=504 => 14,
        _ => UNKNOWN,
    };
    let reason = http.canonical_reason().unwrap_or_default();
    let number = http.as_u16();
    Status { code, message: format!("unexpected HTTP status code received from server: {number} ({reason})") }
}

/// Decodes the percent encoding of a message.
fn decode_message(text: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let byte = match rest {
            [b'%', high, low, ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                digit(*high).zip(digit(*low)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok())
            }
            _ => None,
        };
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &rest[3..] } else { tail };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Encodes a `HealthCheckRequest` with its header.
fn encode(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(1 << 3 | 2);
        let mut length = service.len();
        while length >= 0x80 {
            message.put_u8((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        message.put_u8(length as u8);
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::with_capacity(HEADER + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put(message);
    framed.freeze()
}

/// Decodes the state of a `HealthCheckResponse` with its header. Unknown fields are skipped.
fn decode(framed: &[u8]) -> Option<u64> {
    let (header, mut rest) = framed.split_at_checked(HEADER)?;
    let length = u32::from_be_bytes(header[1..].try_into().ok()?);
    // The client doesn't offer compression, so the flag is zero.
    if header[0] != 0 || usize::try_from(length).ok()? != rest.len() {
        return None;
    }
    let mut state = 0;
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let skipped = match tag & 7 {
            0 => {
                let value = varint(&mut rest)?;
                if tag >> 3 == 1 {
                    state = value;
                }
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?).ok()?,
            5 => 4,
            _ => return None,
        };
        rest = rest.get(skipped..)?;
    }
    Some(state)
}

/// Reads a number of variable length.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Returns whole seconds as Go prints a duration: `1m30s`.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_encoded_as_the_protocol_says() {
        assert_eq!(&encode("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&encode("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = encode(&"x".repeat(300));
        assert_eq!(&long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 2]);
        assert_eq!(long.len(), HEADER + 303);
    }

    #[test]
    fn answers_are_decoded_with_unknown_fields() {
        assert_eq!(decode(&[0, 0, 0, 0, 0]), Some(0));
        assert_eq!(decode(&[0, 0, 0, 0, 2, 8, 1]), Some(1));
        assert_eq!(decode(&[0, 0, 0, 0, 6, 0x12, 2, 7, 7, 8, 2]), Some(2));
        assert_eq!(decode(&[0, 0, 0, 0, 7, 0x1d, 1, 2, 3, 4, 8, 3]), Some(3));
        for bad in [&[][..], &[0, 0, 0, 0, 9, 8, 1], &[1, 0, 0, 0, 2, 8, 1], &[0, 0, 0, 0, 2, 8, 0x80]] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
        assert_eq!(decode(&[0, 0, 0, 0, 3, 0x12, 99, 1]), None);
    }

    #[test]
    fn statuses_are_read_from_headers() {
        let mut headers = HeaderMap::new();
        assert_eq!(status(&headers), None);
        headers.insert("grpc-status", "5".parse().expect("a value"));
        headers.insert("grpc-message", "no%20such %zz 100%".parse().expect("a value"));
        assert_eq!(status(&headers), Some(Status { code: 5, message: "no such %zz 100%".into() }));
        assert_eq!(of_http(StatusCode::NOT_FOUND).code, UNIMPLEMENTED);
    }

    #[test]
    fn durations_are_printed_as_in_go() {
        assert_eq!(
            [1, 60, 90, 3661].map(|seconds| go_duration(Duration::from_secs(seconds))),
            ["1s", "1m0s", "1m30s", "1h1m1s"]
        );
    }
}
