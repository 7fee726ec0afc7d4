//! Sending the request of a case.

use anyhow::{Context, Result, bail, ensure};
use http::HeaderMap;
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    corpus::{Case, Header, Verb},
    normalize::{hide_addresses, hide_suffix},
};

/// The namespace of all requests.
pub const NAMESPACE: &str = "corpus";

/// The maximum number of attempts of an update, which a controller's write may precede.
const ATTEMPTS: usize = 10;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRequest {
    /// The HTTP method.
    pub method: String,
    /// The path and query.
    pub path: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body, or an empty text.
    pub body: String,
}

impl RawRequest {
    /// Returns a request with a JSON body, which may be empty.
    pub fn json(method: &str, path: impl Into<String>, body: impl Into<String>) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self { method: method.into(), path: path.into(), headers, body: body.into() }
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawAnswer {
    /// The HTTP code.
    pub code: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: String,
}

impl RawAnswer {
    /// Returns the texts of the `Warning` headers.
    pub fn warnings(&self) -> Vec<String> {
        let values = self.headers.get_all("warning").iter();
        values.filter_map(|value| value.to_str().ok()).map(warning).collect()
    }
}

/// Returns the text of a `Warning` header, such as `299 - "deprecated"`.
fn warning(header: &str) -> String {
    let quoted = header.splitn(3, ' ').nth(2).unwrap_or(header);
    let text = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(quoted);
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}

/// Sends requests to an API server.
pub trait Transport {
    /// Sends one request.
    fn send(&self, request: RawRequest) -> impl Future<Output = Result<RawAnswer>>;
}

/// Creates a namespace with its default service account, without which no pod can be created.
///
/// # Errors
/// Returns an error if one of them can't be created.
pub async fn create_namespace(transport: &impl Transport, namespace: &str) -> Result<()> {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    for (path, kind, name) in [("/api/v1/namespaces", "Namespace", namespace), (&accounts, "ServiceAccount", "default")]
    {
        let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}).to_string();
        let answer = transport.send(RawRequest::json("POST", path, body)).await?;
        // A controller may have created the account.
        ensure!(answer.code == 201 || answer.code == 409 && name != namespace, "{path}: {}", answer.body);
    }
    Ok(())
}

/// Creates the valid object of a file, if a case needs it.
///
/// # Errors
/// Returns an error if the object is refused.
pub async fn prepare(transport: &impl Transport, header: &Header, cases: &[Case]) -> Result<()> {
    if cases.iter().all(|case| case.verb == Verb::Create) {
        return Ok(());
    }
    let body = header.base.to_string();
    let answer = transport.send(RawRequest::json("POST", header.path.as_str(), body)).await?;
    if answer.code != 201 {
        bail!("the valid object is refused: {}", answer.body);
    }
    Ok(())
}

/// Sends the request of a case. The valid object exists if the case is an update.
///
/// # Errors
/// Returns an error if there is no answer.
pub async fn exchange(transport: &impl Transport, header: &Header, case: &Case) -> Result<Answer> {
    if case.verb == Verb::Create {
        let object = case.change.apply(&header.base);
        let path = format!("{}?dryRun=All", header.path);
        let create = RawRequest::json("POST", path, object.to_string());
        let mut answer = transport.send(create).await?;
        hide_suffix(&mut answer.body, &object);
        return Ok(Answer::read(&answer));
    }
    let name = header.base["metadata"]["name"].as_str().context("the valid object has no name")?;
    let path = format!("{}/{name}", header.path);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let read = transport.send(RawRequest::json("GET", path.clone(), String::new())).await?;
        let object: Value = serde_json::from_str(&read.body).with_context(|| format!("read {path}: {}", read.body))?;
        let body = case.change.apply(&object).to_string();
        let update = RawRequest::json("PUT", format!("{path}?dryRun=All"), body);
        let mut answer = transport.send(update).await?;
        hide_addresses(&mut answer.body, &object);
        if answer.code != 409 || attempts == ATTEMPTS {
            return Ok(Answer::read(&answer));
        }
    }
}
