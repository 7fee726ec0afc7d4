//! Bodies: JSON or YAML text into values, and what is odd about them.
//!
//! A field that is given twice is kept in its last form and reported, as Kubernetes does; nesting, size and numbers are
//! bounded by the parsers.

use std::fmt;

use http::{HeaderMap, header};
use kubewright_apimachinery::status::Status;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Options};

/// The largest body, in bytes, as in Kubernetes.
pub(crate) const BODY_LIMIT: usize = 3 << 20;

/// The deepest nesting of a YAML body; the JSON parser has the same limit of its own.
const YAML_DEPTH: usize = 128;
/// Bytes of stack for the YAML parser.
const YAML_STACK: usize = 16 << 20;

/// The form of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
}

/// A body, parsed.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// One message for each field that was given more than once.
    pub(crate) duplicates: Vec<String>,
}

/// The media type of the body, without parameters; JSON when absent.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text.split(';').next().unwrap_or_default().trim() {
        "" => "application/json".into(),
        other => other.to_ascii_lowercase(),
    }
}

impl Format {
    /// The form of an object's body. Protobuf and others are refused.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Status> {
        match media_type(headers).as_str() {
            "application/json" => Ok(Self::Json),
            "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(Self::Yaml),
            _ => Err(unsupported("application/json, application/yaml")),
        }
    }
}

/// 415, with what would be accepted.
pub(crate) fn unsupported(accepted: &str) -> Status {
    let message =
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
    Status::new(415, "UnsupportedMediaType", message)
}

/// Parses a body.
pub(crate) fn decode(format: Format, body: &[u8]) -> Result<Decoded, Status> {
    match format {
        Format::Json => json(body),
        Format::Yaml => yaml(body),
    }
}

fn json(body: &[u8]) -> Result<Decoded, Status> {
    let mut duplicates = Vec::new();
    let mut parser = serde_json::Deserializer::from_slice(body);
    let value = Seed(&mut duplicates)
        .deserialize(&mut parser)
        .and_then(|value| parser.end().map(|()| value))
        .map_err(|error| Status::bad_request(format!("error decoding JSON: {error}")))?;
    let duplicates = duplicates.into_iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    Ok(Decoded { value, duplicates })
}

fn yaml(body: &[u8]) -> Result<Decoded, Status> {
    // JSON is nearly YAML, but for its escapes and its depth; clients send it under YAML's name.
    if body.trim_ascii_start().starts_with(b"{")
        && let Ok(decoded) = json(body)
    {
        return Ok(decoded);
    }
    let text = std::str::from_utf8(body).map_err(|_| malformed(&"invalid UTF-8"))?;
    // The parser takes some 25 KB of stack for each level of nesting in debug builds, which is more than a worker thread has.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("yaml".into()).stack_size(YAML_STACK);
        let thread = thread.spawn_scoped(scope, || yaml_text(text)).map_err(Status::internal)?;
        thread.join().unwrap_or_else(|panic| Err(Status::internal(crate::body::message(&*panic))))
    })
}

fn yaml_text(text: &str) -> Result<Decoded, Status> {
    match serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::Error)) {
        Ok(value) => Ok(Decoded { value, duplicates: Vec::new() }),
        Err(first) => {
            let value = serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::LastWins))
                .map_err(|error| malformed(&error))?;
            Ok(Decoded { value, duplicates: vec![format!("yaml: {first}")] })
        }
    }
}

fn malformed(why: &dyn fmt::Display) -> Status {
    Status::bad_request(format!("error converting YAML to JSON: yaml: {why}"))
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: YAML_DEPTH },
        duplicate_keys: duplicate_keys,
        with_snippet: false,
    }
}

/// Builds a value and notes the paths of fields given more than once.
struct Seed<'a>(&'a mut Vec<String>);

impl Seed<'_> {
    /// Notes from below get the segment of the place they came from.
    fn prefix(notes: &mut [String], segment: &str) {
        for note in notes {
            let dot = if note.starts_with('[') { "" } else { "." };
            *note = format!("{segment}{dot}{note}");
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.into()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let known = self.0.len();
            let Some(item) = access.next_element_seed(Seed(self.0))? else { return Ok(Value::Array(items)) };
            Self::prefix(&mut self.0[known..], &format!("[{}]", items.len()));
            items.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let known = self.0.len();
            let value = access.next_value_seed(Seed(self.0))?;
            Self::prefix(&mut self.0[known..], &key);
            if fields.contains_key(&key) && !self.0.contains(&key) {
                self.0.push(key.clone());
            }
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(format: Format, body: &str, expect: Value, duplicates: &[&str]) {
        let decoded = decode(format, body.as_bytes()).unwrap();
        assert_eq!(decoded.value, expect, "{body}");
        assert_eq!(decoded.duplicates, duplicates, "{body}");
    }

    #[test]
    fn duplicates_are_named_by_their_paths() {
        let body = r#"{"spec":{"a":1,"a":2,"list":[{"x":1},{"x":1,"x":1,"x":1}]},"kind":"K"}"#;
        let value = json!({"kind": "K", "spec": {"a": 2, "list": [{"x": 1}, {"x": 1}]}});
        check(Format::Json, body, value, &[r#"duplicate field "spec.a""#, r#"duplicate field "spec.list[1].x""#]);
        let decoded = decode(Format::Yaml, b"a: 1\na: 2\n").unwrap();
        assert_eq!((decoded.value, decoded.duplicates.len()), (json!({"a": 2}), 1));
    }

    #[test]
    fn yaml_is_read() {
        check(Format::Yaml, "a: 1\nb: [x, 'y']\nc: {d: 1.5}\n", json!({"a": 1, "b": ["x", "y"], "c": {"d": 1.5}}), &[]);
        check(Format::Yaml, r#"{"a": "\/"}"#, json!({"a": "/"}), &[]);
        let deep = "{a: ".repeat(100) + "1" + &"}".repeat(100);
        assert!(decode(Format::Yaml, deep.as_bytes()).is_ok());
    }

    #[test]
    fn what_is_malformed_is_refused() {
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
