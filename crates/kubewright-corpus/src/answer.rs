//! The recorded part of an answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{exchange::RawAnswer, normalize::normalize};

/// What an API server answered, without anything that differs between two servers or two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The HTTP code.
    pub code: u16,
    /// The reason of an error; that of a code of 422, `Invalid`, is left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message of an error. It is left out if it follows from the causes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The causes of an error, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// The warnings, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One cause of an error: its type, such as `FieldValueInvalid`, its field and its message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause(pub String, pub String, pub String);

impl Answer {
    /// Reads the answer of a server.
    pub fn read(raw: &RawAnswer) -> Self {
        let body: Value = serde_json::from_str(&raw.body).unwrap_or_default();
        let mut answer = Self { code: raw.code, ..Self::default() };
        answer.warnings = raw.warnings().iter().map(|warning| normalize(warning)).collect();
        if body["kind"] != "Status" {
            return answer;
        }
        let text = |value: &Value| normalize(value.as_str().unwrap_or_default());
        let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
        answer.causes = causes
            .iter()
            .map(|cause| Cause(text(&cause["reason"]), text(&cause["field"]), text(&cause["message"])))
            .collect();
        answer.reason = text(&body["reason"]);
        answer.message = text(&body["message"]);
        if (answer.code, answer.reason.as_str()) == (422, "Invalid") {
            answer.reason.clear();
            if answer.message == answer.implied_message(&body) {
                answer.message.clear();
            }
        }
        answer
    }

    /// Returns the message that follows from the causes: each message once.
    fn implied_message(&self, body: &Value) -> String {
        let (details, mut lines) = (&body["details"], Vec::new());
        for Cause(_, field, message) in &self.causes {
            let line = format!("{field}: {message}");
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let text = |field: &str| details[field].as_str().unwrap_or_default();
        let kind = match text("group") {
            "" => text("kind").to_owned(),
            group => format!("{}.{group}", text("kind")),
        };
        let list = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        normalize(&format!("{kind} {:?} is invalid: {list}", text("name")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(message: &str) -> Answer {
        let cause = json!({"reason": "FieldValueRequired", "field": "spec.a", "message": "Required value"});
        let body = json!({
            "kind": "Status", "reason": "Invalid", "message": message, "code": 422,
            "details": {"name": "x", "group": "apps", "kind": "Deployment", "causes": [cause, cause]},
        });
        Answer::read(&RawAnswer { code: 422, headers: http::HeaderMap::new(), body: body.to_string() })
    }

    #[test]
    fn implied_messages_are_left_out() {
        assert_eq!(read("Deployment.apps \"x\" is invalid: spec.a: Required value").message, "");
        assert_eq!(read("other words").message, "other words");
        assert_eq!(read("").causes.len(), 2);
    }
}
