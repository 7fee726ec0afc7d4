//! The comparison of two servers by random scenarios.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    exchange::Transport,
    random::Generator,
    scenario::{Reply, Scenario, Step, run},
};

/// The number of objects whose requests share a namespace.
const BATCH: usize = 20;

/// Differences of the answers, by what differs.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The number of compared answers.
    pub requests: usize,
    /// The number of answers and the first of them by what differs: the kind, the step and the parts of the answers.
    pub differences: BTreeMap<String, (usize, Difference)>,
}

/// Two answers that differ.
#[derive(Debug)]
pub struct Difference {
    /// The request.
    pub step: Step,
    /// The answer of the one server.
    pub one: Reply,
    /// The answer of the other server.
    pub other: Reply,
}

impl Comparison {
    /// Sends the requests about this number of random objects to two servers, and compares the answers. Texts for
    /// people are compared if `texts` is set. `suffix` distinguishes the namespaces from those of earlier runs.
    ///
    /// # Errors
    /// Returns an error if a request has no answer, or a namespace can't be created.
    pub async fn extend(
        &mut self,
        generator: &mut Generator<'_>,
        (one, other): (&impl Transport, &impl Transport),
        objects: usize,
        texts: bool,
        suffix: &str,
    ) -> Result<()> {
        for batch in 0..objects.div_ceil(BATCH) {
            let number = BATCH.min(objects - batch * BATCH);
            let scenario = generator.scenario(&format!("random-{batch}"), number);
            let (ones, others) = tokio::join!(run(one, &scenario, suffix), run(other, &scenario, suffix));
            let (ones, others) = (ones.context("the first server")?, others.context("the second server")?);
            self.add(scenario, ones, others, texts);
        }
        Ok(())
    }

    fn add(&mut self, scenario: Scenario, ones: Vec<Reply>, others: Vec<Reply>, texts: bool) {
        // What follows a difference is about another object.
        let mut differing = None;
        for (step, (one, other)) in scenario.steps.into_iter().zip(ones.into_iter().zip(others)) {
            let mut words = step.step.splitn(4, ' ');
            let (kind, index) =
                (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
            let what = words.nth(1).unwrap_or_default().to_owned();
            if differing.as_ref() == Some(&index) {
                continue;
            }
            self.requests += 1;
            let parts = parts(&one, &other, texts);
            if parts.is_empty() {
                continue;
            }
            let differs = format!("{kind}, {what}: {}", parts.join(", "));
            differing = (one.code != other.code || one.code < 300).then_some(index);
            self.differences.entry(differs).or_insert((0, Difference { step, one, other })).0 += 1;
        }
    }
}

/// Returns the parts of two answers that differ.
fn parts(one: &Reply, other: &Reply, texts: bool) -> Vec<String> {
    if one.code != other.code {
        return vec![format!("code {} and {}", one.code, other.code)];
    }
    let mut parts = Vec::new();
    let body = |reply: &Reply| if texts { reply.body.clone() } else { without_texts(reply.body.clone()) };
    differ("", &body(one), &body(other), &mut parts);
    if one.warnings.len() != other.warnings.len() || (texts && one.warnings != other.warnings) {
        parts.push("warnings".into());
    }
    parts.dedup();
    parts.truncate(3);
    parts
}

/// Removes the messages of a `Status`, and sorts its causes.
fn without_texts(mut body: Value) -> Value {
    if body["kind"] != "Status" {
        return body;
    }
    if let Some(fields) = body.as_object_mut() {
        fields.remove("message");
    }
    if let Some(causes) = body.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
        for cause in causes.iter_mut().filter_map(Value::as_object_mut) {
            cause.remove("message");
        }
        causes.sort_by_cached_key(Value::to_string);
        causes.dedup();
    }
    body
}

/// Lists the paths at which two values differ, without the indices of lists.
fn differ(at: &str, one: &Value, other: &Value, parts: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            for name in one.keys().chain(other.keys().filter(|name| !one.contains_key(*name))) {
                let null = Value::Null;
                let [one, other] = [one, other].map(|fields| fields.get(name).unwrap_or(&null));
                differ(&format!("{at}.{name}"), one, other, parts);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).for_each(|(one, other)| differ(&format!("{at}[]"), one, other, parts));
        }
        _ if one != other => parts.push(at.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(code: u16, body: Value) -> Reply {
        Reply { code, body, ..Reply::default() }
    }

    #[test]
    fn differing_parts_are_named_without_texts() {
        let status = |message: &str, field: &str| {
            reply(
                422,
                json!({"kind": "Status", "message": message, "details": {"causes": [{"field": field, "message": message}]}}),
            )
        };
        assert_eq!(parts(&status("a", "f"), &status("b", "f"), false), Vec::<String>::new());
        assert_eq!(parts(&status("a", "f"), &status("b", "f"), true), [".details.causes[].message", ".message"]);
        assert_eq!(parts(&status("a", "f"), &status("a", "g"), false), [".details.causes[].field"]);
        assert_eq!(parts(&reply(200, json!({})), &reply(201, json!({})), false), ["code 200 and 201"]);
        let spec = |spec: Value| reply(200, json!({"spec": spec}));
        assert_eq!(parts(&spec(json!({"a": 1})), &spec(json!({"b": 1})), false), [".spec.a", ".spec.b"]);
    }

    #[test]
    fn an_object_counts_until_its_answers_differ() {
        let steps = ["a 0 0 create", "a 0 1 update", "a 1 2 create"];
        let steps = steps.map(|step| Step { step: step.into(), ..Step::default() }).to_vec();
        let scenario = Scenario { name: "random".into(), server: String::new(), steps };
        let [one, other] =
            [201, 409].map(|code| vec![reply(code, json!({})), reply(200, json!({})), reply(200, json!({}))]);
        let mut comparison = Comparison::default();
        comparison.add(scenario, one, other, false);
        assert_eq!(comparison.requests, 2);
        assert_eq!(comparison.differences.keys().collect::<Vec<_>>(), ["a, create: code 201 and 409"]);
    }
}
