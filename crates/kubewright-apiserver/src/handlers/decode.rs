//! Decoding of request bodies: JSON, YAML or protobuf.
//!
//! If a field is duplicated, its last value applies and the duplicate is reported, as in Kubernetes. The parsers limit
//! nesting, size and numbers.

use http::{HeaderMap, header};
pub(crate) use kubewright_apimachinery::decode::Decoded;
use kubewright_apimachinery::{decode, status::Status};

use crate::protobuf;

/// The maximum size of a body in bytes, as in Kubernetes.
pub(crate) const MAX_BODY: usize = 3 << 20;

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// Returns the media type of the body, without parameters; JSON if absent.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text.split(';').next().unwrap_or_default().trim() {
        "" => "application/json".into(),
        other => other.to_ascii_lowercase(),
    }
}

impl Format {
    /// Returns the format of a body that is an object.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Status> {
        match media_type(headers).as_str() {
            "application/json" => Ok(Self::Json),
            "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(Self::Yaml),
            protobuf::MEDIA_TYPE => Ok(Self::Protobuf),
            _ => Err(unsupported("application/json, application/yaml, application/vnd.kubernetes.protobuf")),
        }
    }
}

/// Returns 415 with the accepted media types.
pub(crate) fn unsupported(accepted: &str) -> Status {
    let message =
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
    Status::new(415, "UnsupportedMediaType", message)
}

/// Parses a body.
pub(crate) fn decode(format: Format, body: &[u8]) -> Result<Decoded, Status> {
    let decoded = match format {
        Format::Json => decode::json(body),
        Format::Yaml => decode::yaml(body),
        Format::Protobuf => {
            let value = protobuf::decode(body).map_err(|error| Status::bad_request(error.to_string()))?;
            return Ok(Decoded { value, duplicates: Vec::new() });
        }
    };
    decoded.map_err(|error| Status::bad_request(error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(format: Format, body: &str, expect: Value, duplicates: &[&str]) {
        let decoded = decode(format, body.as_bytes()).unwrap();
        assert_eq!(decoded.value, expect, "{body}");
        assert_eq!(decoded.duplicates, duplicates, "{body}");
    }

    #[test]
    fn duplicate_fields_are_reported_by_path() {
        let body = r#"{"spec":{"a":1,"a":2,"list":[{"x":1},{"x":1,"x":1,"x":1}]},"kind":"K"}"#;
        let value = json!({"kind": "K", "spec": {"a": 2, "list": [{"x": 1}, {"x": 1}]}});
        check(Format::Json, body, value, &[r#"duplicate field "spec.a""#, r#"duplicate field "spec.list[1].x""#]);
        let decoded = decode(Format::Yaml, b"a: 1\na: 2\n").unwrap();
        assert_eq!((decoded.value, decoded.duplicates.len()), (json!({"a": 2}), 1));
    }

    #[test]
    fn yaml_is_decoded() {
        check(Format::Yaml, "a: 1\nb: [x, 'y']\nc: {d: 1.5}\n", json!({"a": 1, "b": ["x", "y"], "c": {"d": 1.5}}), &[]);
        check(Format::Yaml, r#"{"a": "\/"}"#, json!({"a": "/"}), &[]);
        let deep = "{a: ".repeat(100) + "1" + &"}".repeat(100);
        assert!(decode(Format::Yaml, deep.as_bytes()).is_ok());
    }

    #[test]
    fn malformed_bodies_are_refused() {
        let deep = "[".repeat(10_000);
        for body in ["", "{", "{}{}", "{\"a\":NaN}", "{\"a\":1e999}", "\u{1}", &deep] {
            assert_eq!(decode(Format::Json, body.as_bytes()).unwrap_err().code, 400, "{body:.20}");
        }
        for body in ["a: [", "a: .nan", "a: .inf", "a: 1\n b: 2", &deep] {
            assert_eq!(decode(Format::Yaml, body.as_bytes()).unwrap_err().code, 400, "{body:.20}");
        }
        assert_eq!(decode(Format::Json, b"{\"a\":\"\xff\"}").unwrap_err().code, 400);
        assert_eq!(decode(Format::Yaml, b"a: \xff").unwrap_err().code, 400);
    }
}
