//! Requests from this machine.
//!
//! Traces and the reasons of failed checks name objects and quote errors, so they are shown only to local requests.
//! These are requests on a connection accepted on a loopback address, with a `Host` that is a loopback address or
//! `localhost`. The `Host` is checked because of DNS rebinding: a web page may make its own host name resolve to
//! 127.0.0.1, and the browser then sends that name.

use std::net::SocketAddr;

use ::http::{Extensions, HeaderMap, StatusCode, Uri, header, uri::Authority};
use axum::{extract::Request, middleware::Next, response::Response};

use super::text;

/// The local address of a connection, as an extension of its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcceptedOn(pub(super) SocketAddr);

/// Returns whether a request is local.
pub(crate) fn is_local(uri: &Uri, headers: &HeaderMap, extensions: &Extensions) -> bool {
    let is_loopback = |AcceptedOn(address): &AcceptedOn| address.ip().to_canonical().is_loopback();
    if !extensions.get::<AcceptedOn>().is_some_and(is_loopback) {
        return false;
    }
    let header = || headers.get(header::HOST)?.to_str().ok()?.parse::<Authority>().ok();
    // In a request with an absolute URI, its host takes precedence.
    let authority = uri.authority().cloned().or_else(header);
    authority.is_some_and(|authority| kubewright_connect::is_loopback(authority.host()))
}

/// Middleware that refuses requests that are not local.
pub(crate) async fn only_local(request: Request, next: Next) -> Response {
    if is_local(request.uri(), request.headers(), request.extensions()) {
        return next.run(request).await;
    }
    let page = "served only on loopback: forward the port (kubectl port-forward pod/NAME PORT) and ask for \
                http://localhost:PORT, or ask the metrics server with a token that may get this path\n";
    text(StatusCode::FORBIDDEN, page.into())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn check(accepted_on: Option<&str>, host: Option<&str>, uri: &str) -> bool {
        let mut request = Request::get(uri).body(Body::empty()).expect("a request");
        if let Some(host) = host {
            request.headers_mut().insert(header::HOST, host.parse().expect("a header"));
        }
        if let Some(address) = accepted_on {
            request.extensions_mut().insert(AcceptedOn(address.parse().expect("an address")));
        }
        is_local(request.uri(), request.headers(), request.extensions())
    }

    #[test]
    fn a_local_request_names_loopback_on_a_loopback_connection() {
        let local = Some("127.0.0.1:8081");
        for host in ["localhost", "localhost:8081", "LOCALHOST:1", "127.0.0.1:8081", "127.3.2.1", "[::1]:8081"] {
            assert!(check(local, Some(host), "/"), "{host}");
        }
        for address in ["[::1]:8081", "[::ffff:127.0.0.1]:8081", "127.4.5.6:8081"] {
            assert!(check(Some(address), Some("localhost"), "/"), "{address}");
        }
        for host in ["evil.example", "evil.example:8081", "localhost.evil.example", "10.0.0.7", "", "a b"] {
            assert!(!check(local, Some(host), "/"), "{host}");
        }
        assert!(!check(local, None, "/"), "without a Host");
        assert!(!check(local, Some("localhost"), "http://evil.example/"), "with an absolute URI");
        for address in [Some("10.0.0.7:8081"), Some("[2001:db8::1]:8081"), None] {
            assert!(!check(address, Some("localhost"), "/"), "{address:?}");
        }
    }
}
