//! Requests to issuers.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{client::legacy::Client as Legacy, rt::TokioExecutor};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::verified_client_config;
use kubewright_connect::{Connector, Proxies};

/// The longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of an answer in bytes. Key sets have a few kilobytes.
const LONGEST: usize = 4 << 20;
/// The greatest number of redirections.
const REDIRECTIONS: usize = 10;

/// A client that trusts the servers of an issuer.
pub(super) struct Client(Legacy<HttpsConnector<Connector>, Empty<Bytes>>);

/// A successful answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Client {
    /// Creates a client that trusts the certificate authorities in `authorities` (PEM), or those of the system if it is
    /// empty.
    ///
    /// # Errors
    /// If the certificates can't be used.
    pub(super) fn new(authorities: &str, clock: &SharedClock) -> Result<Self, String> {
        let bundle = Some(authorities.as_bytes()).filter(|bundle| !bundle.is_empty());
        let config = verified_client_config(bundle, clock)?;
        let connector = Connector::new(Proxies::from_env(), config.clone());
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        Ok(Self(Legacy::builder(TokioExecutor::new()).build(https.wrap_connector(connector))))
    }

    /// Returns what is at an address, if the answer has the status 200.
    ///
    /// # Errors
    /// If there is no such answer within 30 seconds.
    pub(super) async fn get(&self, address: &str) -> Result<Answer, String> {
        let failed = |why: String| format!("Get {address:?}: {why}");
        let exchange = async {
            let mut at = address.to_owned();
            for _ in 0..=REDIRECTIONS {
                let uri: Uri = at.parse().map_err(|error: http::uri::InvalidUri| failed(error.to_string()))?;
                let (status, answer) = self.once(uri.clone()).await.map_err(failed)?;
                let location = answer.headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
                at = match location.filter(|_| status.is_redirection()) {
                    Some(location) => follow(&uri, location),
                    None if status == StatusCode::OK => return Ok(answer),
                    None => return Err(format!("{status}: {}", String::from_utf8_lossy(&answer.body).trim())),
                };
            }
            Err(failed(format!("stopped after {REDIRECTIONS} redirects")))
        };
        let in_time = tokio::time::timeout(TIMEOUT, exchange).await;
        in_time.unwrap_or_else(|_| Err(failed("context deadline exceeded".to_owned())))
    }

    async fn once(&self, uri: Uri) -> Result<(StatusCode, Answer), String> {
        let request = Request::get(uri)
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver")
            .body(Empty::new())
            .map_err(|error| error.to_string())?;
        let response = self.0.request(request).await.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LONGEST).collect().await.map_err(|error| error.to_string())?;
        Ok((head.status, Answer { headers: head.headers, body: body.to_bytes() }))
    }
}

/// Returns the address to which a server at `from` redirects: a URL, or a path.
fn follow(from: &Uri, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    let (scheme, authority) = (from.scheme_str().unwrap_or("https"), from.authority());
    let authority = authority.map_or("", |authority| authority.as_str());
    let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    match location.strip_prefix('/') {
        Some(path) => format!("{scheme}://{authority}/{path}"),
        None => format!("{scheme}://{authority}{folder}/{location}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_lead_to_urls_and_paths() {
        let from = Uri::from_static("https://a:1/b/c");
        for (location, expect) in [("http://d/e", "http://d/e"), ("/e", "https://a:1/e"), ("e", "https://a:1/b/e")] {
            assert_eq!(follow(&from, location), expect);
        }
    }
}
