//! An HTTP client for the web pages.

use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes, header::CONTENT_TYPE};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::time::timeout;

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Requests a page on a new connection.
pub(crate) async fn get(url: &str) -> Result<String> {
    ask(Request::get(url).body(Full::default())?).await.with_context(|| format!("GET {url}"))
}

/// Sends a form.
pub(crate) async fn post(url: &str, form: &'static str) -> Result<String> {
    let request = Request::post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    ask(request.body(Full::from(form))?).await.with_context(|| format!("POST {url}"))
}

async fn ask(request: Request<Full<Bytes>>) -> Result<String> {
    let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = async {
        let answer = client.request(request).await?;
        anyhow::Ok(answer.into_body().collect().await?.to_bytes())
    };
    let body = timeout(TIMEOUT, answer).await.context("no answer")??;
    Ok(String::from_utf8_lossy(&body).into_owned())
}
