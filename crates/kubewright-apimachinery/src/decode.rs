//! Strict decoding of JSON and YAML. Reports duplicate fields, and rejects documents that are too deep or expand too
//! much.
//!
//! The caller limits the size of the text. [`depth::LIMIT`] limits its nesting.
//!
//! The YAML parser is instantiated here only: for each type that is read directly, a program contains it once more.
//! Read a value, and that as a type by `serde_json::from_value`.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value, map::Entry};
use serde_saphyr::{DuplicateKeyPolicy, Options, Spanned};

use crate::{depth, field_path::FieldPath, go_format, go_json::MAX_EXACT, unicode_repair};

/// The maximum number of duplicate fields that are reported.
const DUPLICATES_LIMIT: usize = 100;

/// The maximum number of nodes of a YAML document that come from aliases.
const REPLAY_LIMIT: usize = 100_000;

/// The stack size of the thread that parses YAML, in bytes.
const YAML_STACK: usize = 8 << 20;

/// A decoded document.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The document. The last value of a duplicate field applies.
    pub value: Value,
    /// One message for each duplicate field, in the wording of strict field validation:
    /// `duplicate field "spec.replicas"`, and for YAML `line 7: key "replicas" already set in map`.
    pub duplicates: Vec<String>,
}

/// The error that a text can't be decoded. The response is 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The text is not JSON, is nested too deeply, or has a number out of range.
    #[error("{0}")]
    Json(String),
    /// The text is not YAML, is nested too deeply, or expands by aliases beyond the limit.
    #[error("error converting YAML to JSON: yaml: {0}")]
    Yaml(String),
}

/// Rewrites the numbers of a decoded value as Go reads those without a type: integers beyond 64 bits are floats. A
/// float that is an integer, and exact, becomes one, since Go writes it so and reads it again.
pub fn untyped_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_i64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() <= MAX_EXACT => *value = Value::from(float as i64),
            Some(float) => *value = Value::from(float),
            None => {}
        },
        Value::Array(items) => items.iter_mut().for_each(untyped_numbers),
        Value::Object(fields) => fields.values_mut().for_each(untyped_numbers),
        _ => {}
    }
}

/// Decodes JSON.
pub fn json(text: &[u8]) -> Result<Decoded, DecodeError> {
    json_with(text, false)
}

/// Decodes a JSON document like [`json()`], but as Go decodes it into a struct: a duplicate object or list keeps what
/// the value before it contains.
///
/// # Errors
/// Returns an error if the text isn't JSON, or nests too deeply.
pub fn json_into_struct(text: &[u8]) -> Result<Decoded, DecodeError> {
    json_with(text, true)
}

/// Decodes JSON. As in Go, what isn't Unicode is replaced.
fn json_with(text: &[u8], merges: bool) -> Result<Decoded, DecodeError> {
    unicode_json(text, merges).or_else(|error| {
        let repaired = unicode_repair::repaired(text).and_then(|text| unicode_json(&text, merges).ok());
        repaired.ok_or(error)
    })
}

fn unicode_json(text: &[u8], merges: bool) -> Result<Decoded, DecodeError> {
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let seed = Builder { path: &FieldPath::Root, depth: 0, duplicates: &mut duplicates, merges };
    let failed = |error| DecodeError::Json(in_words_of_go(&error, text));
    let value = seed.deserialize(&mut deserializer).map_err(failed)?;
    deserializer.end().map_err(failed)?;
    Ok(Decoded { value, duplicates })
}

/// Returns the message of Go's `encoding/json` for a syntax error, and that of the parser for all others.
fn in_words_of_go(error: &serde_json::Error, text: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".into();
    }
    const KEY: &str = "looking for beginning of object key string";
    let line = text.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    // The column counts from one. A character that isn't there is the end of the line.
    let found = line.get(error.column().saturating_sub(1)).copied().unwrap_or(b'\n');
    let message = error.to_string();
    let expected = [
        ("expected value", "looking for beginning of value"),
        ("trailing comma", if found == b'}' { KEY } else { "looking for beginning of value" }),
        ("key must be a string", KEY),
        ("expected `:`", "after object key"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("trailing characters", "after top-level value"),
    ];
    match expected.iter().find(|(what, _)| error.is_syntax() && message.starts_with(what)) {
        Some((_, place)) => format!("invalid character {} {place}", quoted(found)),
        None => message,
    }
}

/// Returns a byte in quotes, as Go shows it.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".into(),
        b'"' => "'\"'".into(),
        b'\n' => r"'\n'".into(),
        b'\t' => r"'\t'".into(),
        b'\r' => r"'\r'".into(),
        b' '..=b'~' => format!("'{}'", char::from(byte)),
        0x80.. => format!("'{}'", go_format::quoted(&char::from(byte).to_string()).trim_matches('"')),
        _ => format!("'\\x{byte:02x}'"),
    }
}

/// Decodes a YAML document, the first one of the text. JSON, which clients also send with a YAML media type for apply,
/// is decoded as JSON.
///
/// Keys that are not strings are converted to strings, as Kubernetes does.
pub fn yaml(text: &[u8]) -> Result<Decoded, DecodeError> {
    // Duplicate fields are reported as those of YAML.
    if text.trim_ascii_start().starts_with(b"{")
        && let Ok(mut decoded) = unicode_json(text, false)
        && decoded.duplicates.is_empty()
    {
        untyped_numbers(&mut decoded.value);
        return Ok(decoded);
    }
    let failed = |why: &dyn fmt::Display| DecodeError::Yaml(why.to_string());
    let text = first_document(std::str::from_utf8(text).map_err(|error| failed(&error))?);
    // A debug build of the parser uses about 25 KB of stack per level, more than a server's threads have.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("yaml".into()).stack_size(YAML_STACK);
        let thread = thread.spawn_scoped(scope, || yaml_document(text)).map_err(|error| failed(&error))?;
        thread.join().unwrap_or_else(|_| Err(failed(&"the parser panicked")))
    })
}

/// Returns the part of a text before its second document. Markers are at the beginning of a line, where nothing else in
/// a document can look like one.
fn first_document(text: &str) -> &str {
    let is_marker = |line: &str, marker: &str| {
        line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    let (mut begun, mut end) = (false, 0);
    for line in text.split_inclusive('\n') {
        if begun && (is_marker(line, "---") || is_marker(line, "...")) {
            return &text[..end];
        }
        let content = line.trim_start();
        begun |= !content.is_empty() && !content.starts_with('#') && !line.starts_with('%');
        end += line.len();
    }
    text
}

/// The error that a file is not YAML. Its text quotes the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct YamlFileError(String);

/// Decodes a file of one YAML document, which must have no duplicate fields.
///
/// # Errors
/// If the text is not YAML, has several documents, or is nested too deeply.
pub fn yaml_file(text: &str) -> Result<Value, YamlFileError> {
    let document = serde_saphyr::from_str::<Document>(text);
    document.map(|document| document.value).map_err(|error| YamlFileError(error.to_string()))
}

/// Decodes a file of any number of YAML documents, as [`yaml_file`] does one.
///
/// # Errors
/// If the text is not YAML, or a document is nested too deeply.
pub fn yaml_documents(text: &str) -> Result<Vec<Value>, YamlFileError> {
    let documents = serde_saphyr::from_multiple::<Document>(text).map_err(|error| YamlFileError(error.to_string()))?;
    Ok(documents.into_iter().map(|document| document.value).collect())
}

fn yaml_document(text: &str) -> Result<Decoded, DecodeError> {
    let failed = |error: serde_saphyr::Error| DecodeError::Yaml(error.to_string());
    match yaml_with(text, DuplicateKeyPolicy::Error) {
        Ok(document) => Ok(Decoded { value: document.value, duplicates: Vec::new() }),
        Err(serde_saphyr::Error::DuplicateMappingKey { .. }) => {
            let Document { value, duplicates } = yaml_with(text, DuplicateKeyPolicy::LastWins).map_err(failed)?;
            Ok(Decoded { value, duplicates })
        }
        Err(error) => Err(failed(error)),
    }
}

fn yaml_with(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Document, serde_saphyr::Error> {
    let options: Options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: depth::LIMIT },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAY_LIMIT },
        duplicate_keys: duplicate_keys,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// A value of a YAML document, with the messages about its duplicate fields in the words and the order of Go's library:
/// duplicates in the value of a field come before the field itself. The line is that of the field's value.
struct Document {
    value: Value,
    duplicates: Vec<String>,
}

impl<'de> de::Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DocumentVisitor)
    }
}

/// Builds a [`Document`], whose parser limits the depth.
struct DocumentVisitor;

impl DocumentVisitor {
    /// Builds a scalar.
    fn scalar<E: de::Error>(build: impl FnOnce(Builder<'_>) -> Result<Value, E>) -> Result<Document, E> {
        let builder = Builder { path: &FieldPath::Root, depth: 0, duplicates: &mut Vec::new(), merges: false };
        Ok(Document { value: build(builder)?, duplicates: Vec::new() })
    }
}

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Document, E> {
        Self::scalar(|builder| builder.visit_unit())
    }

    fn visit_none<E: de::Error>(self) -> Result<Document, E> {
        Self::scalar(|builder| builder.visit_none())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Document, E> {
        Self::scalar(|builder| builder.visit_bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Document, E> {
        Self::scalar(|builder| builder.visit_i64(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Document, E> {
        Self::scalar(|builder| builder.visit_u64(value))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Document, E> {
        Self::scalar(|builder| builder.visit_i128(value))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Document, E> {
        Self::scalar(|builder| builder.visit_u128(value))
    }

    /// Go's library writes a number that is an integer as one.
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Document, E> {
        Self::scalar(|builder| match format!("{value:.0}").parse::<i64>() {
            Ok(integer) if value.fract() == 0.0 => builder.visit_i64(integer),
            _ => builder.visit_f64(value),
        })
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Document, E> {
        Self::scalar(|builder| builder.visit_str(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Document, A::Error> {
        let (mut list, mut duplicates) = (Vec::new(), Vec::new());
        while let Some(item) = items.next_element::<Document>()? {
            list.push(item.value);
            duplicates.extend(item.duplicates);
        }
        duplicates.truncate(DUPLICATES_LIMIT);
        Ok(Document { value: list.into(), duplicates })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Document, A::Error> {
        let (mut object, mut duplicates) = (Map::new(), Vec::new());
        while let Some(name) = fields.next_key::<String>()? {
            let Spanned { value: field, referenced, .. } = fields.next_value::<Spanned<Document>>()?;
            duplicates.extend(field.duplicates);
            match object.entry(name) {
                Entry::Vacant(entry) => {
                    entry.insert(field.value);
                }
                Entry::Occupied(mut entry) => {
                    let (line, name) = (referenced.line(), entry.key());
                    duplicates.push(format!("line {line}: key {name:?} already set in map"));
                    entry.insert(field.value);
                }
            }
        }
        duplicates.truncate(DUPLICATES_LIMIT);
        Ok(Document { value: object.into(), duplicates })
    }
}

/// Returns the duplicate fields of a body as the errors of a strict decoder, which reports all those of YAML as one.
pub fn strict_errors(duplicates: Vec<String>) -> Vec<String> {
    if duplicates.first().is_some_and(|first| first.starts_with("line ")) {
        vec![format!("yaml: unmarshal errors:\n  {}", duplicates.join("\n  "))]
    } else {
        duplicates
    }
}

/// Builds one value of a document.
struct Builder<'a> {
    path: &'a FieldPath<'a>,
    /// The number of enclosing containers.
    depth: usize,
    duplicates: &'a mut Vec<String>,
    /// True if the value of a duplicate field is decoded into the one before it, as Go does with structs and maps.
    merges: bool,
}

impl Builder<'_> {
    /// Returns the depth of a value inside this container, if the limit allows it.
    fn deeper<E: de::Error>(&self) -> Result<usize, E> {
        if self.depth < depth::LIMIT {
            Ok(self.depth + 1)
        } else {
            Err(E::custom(format_args!("exceeded max depth of {}", depth::LIMIT)))
        }
    }
}

impl<'de> DeserializeSeed<'de> for Builder<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Builder<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that JSON does not have"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.into()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut list = Vec::new();
        loop {
            let path = self.path.item(list.len());
            let merges = self.merges;
            let builder = Builder { path: &path, depth, duplicates: &mut *self.duplicates, merges };
            match items.next_element_seed(builder)? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = self.path.field(&name);
            let (merges, before) = (self.merges, self.duplicates.len());
            let builder = Builder { path: &path, depth, duplicates: &mut *self.duplicates, merges };
            let value = fields.next_value_seed(builder)?;
            match object.entry(name) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    let message = format!("duplicate field \"{}\"", self.path.field(entry.key()));
                    // A field precedes those in its value.
                    if self.duplicates.len() < DUPLICATES_LIMIT && !self.duplicates.contains(&message) {
                        self.duplicates.insert(before, message);
                    }
                    if self.merges {
                        decode_into(entry.get_mut(), value);
                    } else {
                        entry.insert(value);
                    }
                }
            }
        }
        Ok(Value::Object(object))
    }
}

/// Replaces a value as Go's decoder does: fields of objects, and items of lists, that the new value doesn't have or set
/// keep their values.
fn decode_into(old: &mut Value, new: Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in new {
                decode_into(old.entry(name).or_insert(Value::Null), value);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            old.truncate(new.len());
            for (index, value) in new.into_iter().enumerate() {
                match old.get_mut(index) {
                    Some(old) => decode_into(old, value),
                    None => old.push(value),
                }
            }
        }
        (old, new) => *old = new,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::testing::json_value;

    #[track_caller]
    #[test]
    fn duplicates_are_decoded_into_the_value_before() {
        let text =
            br#"{"a": {"b": 1, "c": [{"d": 1, "e": 2}, 3]}, "a": {"c": [{"d": 4}], "f": null}, "g": {}, "g": 1}"#;
        let decoded = json_into_struct(text).unwrap();
        assert_eq!(decoded.value, json!({"a": {"b": 1, "c": [{"d": 4, "e": 2}], "f": null}, "g": 1}));
        assert_eq!(decoded.duplicates.len(), 2);
    }

    fn check(text: &str, value: Value, duplicates: &[&str]) {
        let decoded = json(text.as_bytes()).unwrap();
        assert_eq!(
            (&decoded.value, decoded.duplicates.as_slice()),
            (&value, &*duplicates.iter().map(|text| text.to_string()).collect::<Vec<_>>())
        );
    }

    #[test]
    fn duplicates_are_reported() {
        check(
            r#"{"a": 1, "b": [{"c": 1, "c": 2}], "a": {"d": 1, "d": 2}}"#,
            json!({"a": {"d": 2}, "b": [{"c": 2}]}),
            &["duplicate field \"b[0].c\"", "duplicate field \"a\"", "duplicate field \"a.d\""],
        );
        check(r#"{"a": 1, "a": 2, "a": 3}"#, json!({"a": 3}), &["duplicate field \"a\""]);
        let many = format!("[{}]", vec!["{\"a\": 1, \"a\": 1}"; 1000].join(","));
        assert_eq!(json(many.as_bytes()).unwrap().duplicates.len(), DUPLICATES_LIMIT);
    }

    #[test]
    fn numbers() {
        check("18446744073709551615", json!(u64::MAX), &[]);
        check("-9223372036854775808", json!(i64::MIN), &[]);
        check("99999999999999999999", json!(1e20), &[]);
        assert!(json(b"1e999").unwrap_err().to_string().contains("number out of range"));
    }

    #[track_caller]
    fn check_error(text: &[u8], expect: &str) {
        let error = json(text).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }

    #[test]
    fn errors() {
        check_error(b"", "unexpected end of JSON input");
        check_error(b"{", "unexpected end of JSON input");
        check_error(b"{} {}", "invalid character '{' after top-level value");
        check_error(b"NaN", "invalid character 'N' looking for beginning of value");
        check_error(b"{\n \"a\": '}", r"invalid character '\'' looking for beginning of value");
        check_error(b"[1,]", "invalid character ']' looking for beginning of value");
        check_error(b"{\"a\":1,}", "invalid character '}' looking for beginning of object key string");
        check_error(b"{a: 1}", "invalid character 'a' looking for beginning of object key string");
        check_error(b"{\"a\" 1}", "invalid character '1' after object key");
        check_error(b"{\"a\":1 2}", "invalid character '2' after object key:value pair");
        check_error(b"[1 2]", "invalid character '2' after array element");
        check_error(b"\x9e", "invalid character '\\u009e' looking for beginning of value");
        assert_eq!(json(b"\"\xff\\ud800\"").unwrap().value, json!("\u{fffd}\u{fffd}"));
        check_error("[".repeat(100_000).as_bytes(), "exceeded max depth");
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(json(nested(depth::LIMIT).as_bytes()).is_ok());
        check_error(nested(depth::LIMIT + 1).as_bytes(), "exceeded max depth");
        let nested = (0..depth::LIMIT).fold("1".to_owned(), |inner, _| format!("{{\"a\":{inner}}}"));
        assert_eq!(depth::of(&json(nested.as_bytes()).unwrap().value), depth::LIMIT);
    }

    #[track_caller]
    fn check_yaml(text: &str, expect: Value) {
        let decoded = yaml(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((decoded.value, decoded.duplicates), (expect, vec![]), "{text}");
    }

    #[test]
    fn yaml_documents() {
        check_yaml(
            "a: 1\nb: [x, 'y', 1.5, true, null]\nc:\n  d: \"1\"\n",
            json!({"a": 1, "b": ["x", "y", 1.5, true, null], "c": {"d": "1"}}),
        );
        check_yaml("---\na: |\n  text\n", json!({"a": "text\n"}));
        check_yaml("1: a\ntrue: b\n", json!({"1": "a", "true": "b"}));
        check_yaml("a: &x {b: 1}\nc: *x\n", json!({"a": {"b": 1}, "c": {"b": 1}}));
        check_yaml("{\"a\": \"\\u00e4\"}", json!({"a": "ä"}));
        check_yaml("{a: 1}", json!({"a": 1}));
        check_yaml("a: 1.0\nb: -2e3\nc: 1.5\n", json!({"a": 1, "b": -2000, "c": 1.5}));
        check_yaml("{\"a\": 1.0, \"b\": -2e3, \"c\": 1.5}", json!({"a": 1, "b": -2000, "c": 1.5}));
        check_yaml("# first\n---\na: 1\n--- # second\na: 2\n", json!({"a": 1}));
        check_yaml("a: |\n  --- b\n...\nc: 2\n", json!({"a": "--- b\n"}));
        check_yaml("---a: 1\n", json!({"---a": 1}));
        check_yaml("a: 2026-01-31\nb: 0x10\nc: 1_000\n", json!({"a": "2026-01-31", "b": 16, "c": 1000}));
    }

    #[test]
    fn the_deepest_document_fits_the_stack() {
        let deep = |depth: usize| format!("{}1{}", "{a: ".repeat(depth), "}".repeat(depth));
        assert_eq!(depth::of(&yaml(deep(depth::LIMIT).as_bytes()).unwrap().value), depth::LIMIT);
        assert!(yaml(deep(depth::LIMIT + 1).as_bytes()).is_err());
        let read = || json(deep(depth::LIMIT).replace('a', "\"a\"").as_bytes()).unwrap();
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(1 << 20).spawn_scoped(scope, read).unwrap();
            assert_eq!(depth::of(&thread.join().unwrap().value), depth::LIMIT);
        });
    }

    #[test]
    fn duplicates_in_yaml() {
        let decoded = yaml(b"a: 1\nb:\n- c: 1\n  c:\n    d: 2\na: {e: 1, e: 2}\n").unwrap();
        assert_eq!(decoded.value, json!({"a": {"e": 2}, "b": [{"c": {"d": 2}}]}));
        let key = |line: u32, key: &str| format!("line {line}: key \"{key}\" already set in map");
        let expect = [key(5, "c"), key(6, "e"), key(6, "a")];
        assert_eq!(decoded.duplicates, expect, "the line is that of the value");
        let expect = format!("yaml: unmarshal errors:\n  {}", expect.join("\n  "));
        assert_eq!(strict_errors(decoded.duplicates), [expect]);
        assert_eq!(yaml(b"{\"a\": 1, \"a\": 2}").unwrap().duplicates, [key(1, "a")], "JSON, too");
        assert_eq!(strict_errors(vec!["duplicate field \"a\"".into()]), ["duplicate field \"a\""]);
    }

    #[test]
    fn numbers_without_a_type_are_those_of_go() {
        let read = |text: &str| {
            let mut value = json(text.as_bytes()).unwrap().value;
            untyped_numbers(&mut value);
            value
        };
        assert_eq!(read("[1.0, -2e3, 1.5, 9223372036854775807]"), json!([1, -2000, 1.5, i64::MAX]));
        assert_eq!(read(r#"{"a": [9223372036854775808, 1e18]}"#), json!({"a": [9_223_372_036_854_775_808.0, 1e18]}));
        assert_eq!(json(b"[1.0]").unwrap().value, json!([1.0]), "structs distinguish them");
    }

    #[test]
    fn yaml_errors() {
        let error = |text: &str| yaml(text.as_bytes()).unwrap_err().to_string();
        assert!(error("a: [").starts_with("error converting YAML to JSON: yaml: "));
        assert!(error("a: .nan").starts_with("error converting YAML to JSON: yaml: "));
        assert!(error(&"[".repeat(100_000)).starts_with("error converting YAML to JSON: yaml: "));
        assert!(yaml(b"\xff").is_err());
        let bomb = (0..20).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, level| {
            let alias = format!("*a{level}");
            format!("{text}a{next}: &a{next} [{}]\n", vec![alias; 9].join(", "), next = level + 1)
        });
        assert!(yaml(bomb.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn printed_values_are_read_back(value in json_value()) {
            let expect = Decoded { value: value.clone(), duplicates: vec![] };
            prop_assert_eq!(json(value.to_string().as_bytes()).unwrap(), expect);
        }

        #[test]
        fn arbitrary_input_causes_no_panic(text in "\\PC{0,40}") {
            let _ = (json(text.as_bytes()), yaml(text.as_bytes()));
        }
    }
}
