//! Raw requests, for input that no typed client would send.

use std::sync::Arc;

use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use kubewright_apiserver::{ApiServer, UserInfo};
use serde_json::Value;

/// A collected response.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    /// The body as text, with replacements for what isn't UTF-8.
    pub(crate) text: String,
    pub(crate) body: Vec<u8>,
}

impl RawResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    #[track_caller]
    pub(crate) fn expect_code(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{}", self.text);
        self
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Sends a request as the administrator. Headers are `Name: value`.
pub(crate) async fn send(api: &ApiServer, line: &str, headers: &[&str], body: impl Into<Vec<u8>>) -> RawResponse {
    send_as(api, &UserInfo::admin(), line, headers, body).await
}

/// Sends a request as a user.
pub(crate) async fn send_as(
    api: &ApiServer,
    user: &UserInfo,
    line: &str,
    headers: &[&str],
    body: impl Into<Vec<u8>>,
) -> RawResponse {
    let (method, path) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(path).extension(Arc::new(user.clone()));
    for header in headers {
        let (name, value) = header.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    let answer = api.handle(request.body(Full::from(body.into())).unwrap()).await;
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    RawResponse {
        code: parts.status.as_u16(),
        headers: parts.headers,
        text: String::from_utf8_lossy(&bytes).into_owned(),
        body: bytes.to_vec(),
    }
}

/// Sends a request without headers or body.
pub(crate) async fn get(api: &ApiServer, path: &str, accept: &str) -> RawResponse {
    send(api, &format!("GET {path}"), &[&format!("Accept: {accept}")], "").await
}
