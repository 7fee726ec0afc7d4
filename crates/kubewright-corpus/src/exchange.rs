//! Sending the request of a case.

use anyhow::{Context, Result, bail};
use serde_json::Value;

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
    pub method: &'static str,
    /// The path and query.
    pub path: String,
    /// The body, JSON or empty.
    pub body: String,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawAnswer {
    /// The HTTP code.
    pub code: u16,
    /// The body.
    pub body: String,
    /// The texts of the `Warning` headers.
    pub warnings: Vec<String>,
}

/// Returns the text of a `Warning` header, such as `299 - "deprecated"`.
pub fn warning(header: &str) -> String {
    let quoted = header.splitn(3, ' ').nth(2).unwrap_or(header);
    let text = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(quoted);
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}

/// Sends requests to an API server.
pub trait Transport {
    /// Sends one request.
    fn send(&self, request: RawRequest) -> impl Future<Output = Result<RawAnswer>>;
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
    let answer = transport.send(RawRequest { method: "POST", path: header.path.clone(), body }).await?;
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
        let create = RawRequest { method: "POST", path, body: object.to_string() };
        let mut answer = transport.send(create).await?;
        hide_suffix(&mut answer.body, &object);
        return Ok(Answer::read(&answer));
    }
    let name = header.base["metadata"]["name"].as_str().context("the valid object has no name")?;
    let path = format!("{}/{name}", header.path);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let read = transport.send(RawRequest { method: "GET", path: path.clone(), body: String::new() }).await?;
        let object: Value = serde_json::from_str(&read.body).with_context(|| format!("read {path}: {}", read.body))?;
        let body = case.change.apply(&object).to_string();
        let update = RawRequest { method: "PUT", path: format!("{path}?dryRun=All"), body };
        let mut answer = transport.send(update).await?;
        hide_addresses(&mut answer.body, &object);
        if answer.code != 409 || attempts == ATTEMPTS {
            return Ok(Answer::read(&answer));
        }
    }
}
