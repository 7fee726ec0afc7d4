//! Sending the requests of a scenario.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Reply, Scenario, Step, normal::Normalizer};
use crate::exchange::{RawAnswer, RawRequest, Transport, create_namespace};

/// The user agent of all requests, which names the field manager.
const USER_AGENT: &str = "corpus/1.0";
/// The number of repetitions of a request for a step that waits, a tenth of a second apart.
const ATTEMPTS: usize = 100;
/// The headers of an answer that are recorded.
const HEADERS: &[&str] = &["content-type", "allow", "location", "retry-after"];

/// Creates the namespace with its default service account, sends all requests, and returns the answers in their order.
/// `suffix` distinguishes the namespace from those of earlier runs on the same server.
///
/// # Errors
/// Returns an error if a request has no answer, or the namespace can't be created.
pub async fn run(transport: &impl Transport, scenario: &Scenario, suffix: &str) -> Result<Vec<Reply>> {
    let namespace = format!("{}-{suffix}", scenario.name);
    create_namespace(transport, &namespace).await?;
    let mut variables: BTreeMap<String, String> = [("ns".to_owned(), namespace.clone())].into();
    let mut replies = Vec::new();
    for step in &scenario.steps {
        let answer = send(transport, step, &variables).await.with_context(|| step.step.clone())?;
        let reply = read(&answer, &namespace);
        let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        for (name, pointer) in &step.save {
            let value = body.pointer(pointer).cloned().unwrap_or_default();
            variables.insert(name.clone(), value.as_str().map_or_else(|| value.to_string(), Into::into));
        }
        replies.push((step.keep.as_slice(), reply));
    }
    Ok(Normalizer::default().normalize(replies))
}

async fn send(transport: &impl Transport, step: &Step, variables: &BTreeMap<String, String>) -> Result<RawAnswer> {
    let mut attempts = 0;
    loop {
        let answer = transport.send(request(step, variables)?).await?;
        attempts += 1;
        if step.wait.is_none_or(|code| code == answer.code) || attempts == ATTEMPTS {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn request(step: &Step, variables: &BTreeMap<String, String>) -> Result<RawRequest> {
    let fill = |text: &str| {
        variables.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    };
    let (method, path) = step.send.split_once(' ').context("a step needs a method and a path")?;
    let body = if step.body.is_null() { step.text.clone() } else { step.body.to_string() };
    let content_type = match step.content_type.as_str() {
        "" if body.is_empty() => "",
        "" => "application/json",
        "json" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        "yaml" => "application/yaml",
        other => other,
    };
    let mut headers = vec![("User-Agent".to_owned(), USER_AGENT.to_owned())];
    for (name, value) in [("Accept", step.accept.as_str()), ("Content-Type", content_type)] {
        if !value.is_empty() {
            headers.push((name.into(), value.into()));
        }
    }
    headers.extend(step.headers.iter().map(|(name, value)| (name.clone(), fill(value))));
    Ok(RawRequest { method: method.into(), path: fill(path), headers, body: fill(&body) })
}

/// Reads an answer, with a placeholder for the namespace.
fn read(answer: &RawAnswer, namespace: &str) -> Reply {
    let hide = |text: &str| text.replace(namespace, "{ns}");
    let mut headers = BTreeMap::new();
    for name in HEADERS {
        let value = answer.headers.get(*name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !value.is_empty() && value != "application/json" {
            headers.insert((*name).to_owned(), hide(value));
        }
    }
    Reply {
        code: answer.code,
        headers,
        warnings: answer.warnings().iter().map(|text| hide(text)).collect(),
        body: parse(&hide(&answer.body)),
    }
}

/// Parses a body: a JSON value, JSON lines, or text.
fn parse(body: &str) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    if let Ok(value) = serde_json::from_str(body) {
        return value;
    }
    let lines: Result<Vec<Value>, _> = body.lines().map(serde_json::from_str).collect();
    lines.map_or_else(|_| body.into(), Value::Array)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let step = Step {
            send: "PATCH /a/{ns}?v={rv}".into(),
            content_type: "merge".into(),
            body: json!({"a": "{ns}", "b": "{unknown}"}),
            ..Step::default()
        };
        let variables = [("ns".to_owned(), "one".to_owned()), ("rv".to_owned(), "7".to_owned())].into();
        let request = request(&step, &variables).unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("PATCH", "/a/one?v=7"));
        assert_eq!(request.body, r#"{"a":"one","b":"{unknown}"}"#);
        assert_eq!(request.headers[1], ("Content-Type".to_owned(), "application/merge-patch+json".to_owned()));
    }

    #[test]
    fn a_watch_is_a_list_of_events() {
        assert_eq!(parse("{\"a\":1}\n{\"a\":2}\n"), json!([{"a": 1}, {"a": 2}]));
        assert_eq!(parse("{\"a\":1}\n"), json!({"a": 1}));
        assert_eq!(parse("404 page not found\n"), json!("404 page not found\n"));
    }
}
