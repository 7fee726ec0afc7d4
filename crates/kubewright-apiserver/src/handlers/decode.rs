//! Decoding of request bodies: JSON, YAML or protobuf.
//!
//! If a field is duplicated, its last value applies and the duplicate is reported, as in Kubernetes. The parsers limit
//! nesting, size and numbers.

use std::collections::BTreeSet;

use http::{HeaderMap, header};
pub(crate) use kubewright_apimachinery::decode::Decoded;
use kubewright_apimachinery::{decode, status::Status};
use serde_json::json;

use crate::{protobuf, schema_rules::not_an_object};

/// The media type of an applied configuration.
pub(super) const APPLY: &str = "application/apply-patch+yaml";

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
        "" if text.is_empty() => "application/json".into(),
        other => other.to_ascii_lowercase(),
    }
}

/// Returns whether the parameters of the media type are written as Go reads them: with tokens as names, which aren't
/// repeated, and tokens or quoted strings as values.
fn has_valid_parameters(headers: &HeaderMap) -> bool {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some((_, mut rest)) = text.split_once(';') else { return true };
    let is_token = |text: &str| {
        let is_special = |c: char| "()<>@,;:\\\"/[]?=".contains(c);
        !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && !is_special(c))
    };
    let mut seen = BTreeSet::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return true;
        }
        let Some((name, value)) = rest.split_once('=') else { return false };
        if !is_token(name) || !seen.insert(name.to_ascii_lowercase()) {
            return false;
        }
        let after = match value.strip_prefix('"') {
            Some(quoted) => after_quoted(quoted),
            None => {
                let (token, after) = value.split_at(value.find([';', ' ', '\t']).unwrap_or(value.len()));
                is_token(token).then_some(after)
            }
        };
        let Some(after) = after.map(str::trim_start) else { return false };
        match after.strip_prefix(';') {
            Some(next) => rest = next,
            None => return after.is_empty(),
        }
    }
}

/// Returns what follows a quoted string, whose first quote has been read.
fn after_quoted(text: &str) -> Option<&str> {
    let mut is_escaped = false;
    let end = text.char_indices().find(|(_, c)| {
        let ends = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        ends
    });
    end.and_then(|(place, _)| text.get(place + 1..))
}

impl Format {
    /// Returns the format of a body that is an object.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Status> {
        match media_type(headers).as_str() {
            _ if !has_valid_parameters(headers) => {
                Err(unsupported("application/json, application/yaml, application/vnd.kubernetes.protobuf"))
            }
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

/// The number of bytes of a body that an error shows.
const SHOWN: usize = 30;

/// Parses a body.
pub(crate) fn decode(format: Format, body: &[u8]) -> Result<Decoded, Status> {
    read(format, true, body).map_err(Status::bad_request)
}

/// Parses a body that is an object of a kind, whose type may be missing in it. One of a custom kind isn't decoded into
/// a struct in Kubernetes.
pub(super) fn object(kind: &str, custom: bool, format: Format, body: &[u8]) -> Result<Decoded, Status> {
    let mut decoded = read(format, custom, body).map_err(|why| unrecognized(kind, &why, body))?;
    if decoded.value.is_null() {
        decoded.value = json!({});
    }
    not_an_object(&decoded.value).map_or(Ok(decoded), |why| Err(unrecognized(kind, &why, body)))
}

/// Returns 400 for a body whose type is unknown.
pub(super) fn unrecognized(kind: &str, why: &str, body: &[u8]) -> Status {
    let (shown, more) = match body.get(..SHOWN) {
        Some(shown) if body.len() > SHOWN => (shown, " ..."),
        _ => (body, ""),
    };
    let shown = match shown.first() {
        None => "<empty>".into(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({shown}{more})"))
}

fn read(format: Format, untyped: bool, body: &[u8]) -> Result<Decoded, String> {
    match format {
        Format::Json => {
            let decoded = if untyped { decode::json(body) } else { decode::json_into_struct(body) };
            decoded.map_err(|why| format!("couldn't get version/kind; json parse error: {why}"))
        }
        Format::Yaml => decode::yaml(body).map_err(|error| error.to_string()),
        Format::Protobuf => {
            let value = protobuf::decode(body).map_err(|error| error.to_string())?;
            Ok(Decoded { value, duplicates: Vec::new() })
        }
    }
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
    fn parameters_of_media_types_are_read_as_in_go() {
        for (text, expect) in [
            ("application/json", true),
            ("application/json;", true),
            ("application/json; charset=utf-8", true),
            ("application/json;a=1 ; b=\"x;\\\"y\" ;", true),
            ("application/json; =", false),
            ("application/json; charset", false),
            ("application/json; charset=", false),
            ("application/json; charset=\"utf-8", false),
            ("application/json; a=1; A=2", false),
            ("application/json; a=1 b=2", false),
            ("application/json; a b=2", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, text.parse().unwrap())]);
            assert_eq!(Format::of(&headers).is_ok(), expect, "{text}");
        }
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
        // As in Go, what isn't Unicode is replaced.
        for body in [&b"{\"a\":\"\xff\"}"[..], br#"{"a":"\ud800"}"#] {
            assert_eq!(decode(Format::Json, body).unwrap().value, json!({"a": "\u{fffd}"}));
        }
        assert_eq!(decode(Format::Yaml, b"a: \xff").unwrap_err().code, 400);
    }
}
