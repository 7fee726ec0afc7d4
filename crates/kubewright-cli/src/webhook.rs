//! Servers outside of the cluster that are given by a kubeconfig, as for kube-apiserver: those that events of the audit
//! log are sent to, and those that decide about tokens and requests.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use http::{Request, StatusCode, header};
use kube::{Client, client::Body, config::Kubeconfig};

/// The longest wait for an answer, where no other is set.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// How often a request is sent, at most.
pub(crate) const ATTEMPTS: u32 = 5;
/// By how much each pause between attempts is longer than the one before.
const BACKOFF: f64 = 1.5;

/// A server, with the credentials for it.
#[derive(Clone)]
pub(crate) struct Webhook {
    client: Client,
    path: String,
    /// The pause after the first attempt that fails.
    backoff: Duration,
    /// The longest wait for an answer.
    timeout: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    /// The server can't be reached, or doesn't answer in time.
    #[error("{0:#}")]
    Unreachable(anyhow::Error),
    /// The server answers with an error.
    #[error("an error on the server ({body:?}) has prevented the request from succeeding")]
    Refused { code: StatusCode, body: String },
}

impl PostError {
    /// Returns whether the request may succeed later.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused { code, .. } => code.is_server_error() || *code == StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

impl Webhook {
    /// Returns the server of a kubeconfig.
    ///
    /// # Errors
    /// If the kubeconfig can't be used.
    pub(crate) async fn open(kubeconfig: PathBuf, backoff: Duration) -> Result<Self> {
        Self::read(&kubeconfig, backoff).await.with_context(|| format!("use the webhook of {}", kubeconfig.display()))
    }

    async fn read(kubeconfig: &Path, backoff: Duration) -> Result<Self> {
        let mut config = kubewright_connect::config(Kubeconfig::read_from(kubeconfig)?, None).await?;
        // Clients of API servers add the paths of requests to that of the server, which is the whole path here.
        let mut parts = config.cluster_url.into_parts();
        let path = parts.path_and_query.take().map_or_else(|| "/".to_owned(), |path| path.path().to_owned());
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        config.cluster_url = http::Uri::from_parts(parts)?;
        config.default_retry = false;
        Ok(Self { client: kubewright_connect::client(config)?, path, backoff, timeout: TIMEOUT })
    }

    /// Sets the longest wait for an answer.
    pub(crate) fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sends an object in JSON, repeatedly as long as `is_temporary` says so of the error, and returns the answer.
    pub(crate) async fn post(
        &self,
        body: &str,
        is_temporary: impl Fn(&PostError) -> bool,
    ) -> Result<Vec<u8>, PostError> {
        let mut pause = self.backoff;
        let mut attempt = 1;
        loop {
            match self.post_once(body).await {
                Err(error) if attempt < ATTEMPTS && is_temporary(&error) => {
                    tracing::warn!(%error, attempt, of = ATTEMPTS, path = self.path, "a webhook couldn't be asked");
                }
                answer => return answer,
            }
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(BACKOFF);
            attempt += 1;
        }
    }

    async fn post_once(&self, body: &str) -> Result<Vec<u8>, PostError> {
        let exchange = async {
            let request = Request::post(format!("{}?timeout={}s", self.path, self.timeout.as_secs()))
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json, */*")
                .body(Body::from(body.as_bytes().to_vec()))?;
            let response = self.client.send(request).await?;
            let code = response.status();
            anyhow::Ok((code, response.into_body().collect_bytes().await?))
        };
        let answer = tokio::time::timeout(self.timeout, exchange).await.map_err(anyhow::Error::from).flatten();
        let (code, answer) = answer.map_err(PostError::Unreachable)?;
        if code.is_success() {
            return Ok(answer.to_vec());
        }
        Err(PostError::Refused { code, body: String::from_utf8_lossy(&answer).trim().to_owned() })
    }
}
