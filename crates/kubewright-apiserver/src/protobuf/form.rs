//! Messages that aren't JSON objects.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::meta;

/// The JSON form of a message.
#[derive(Debug, PartialEq)]
pub(super) enum Form {
    /// An object with the fields.
    Object,
    /// The first field that is present, such as the text of a quantity; null if there is none.
    OneOf(Vec<&'static str>),
    /// `metav1.Time`: whole seconds.
    Time,
    /// `metav1.MicroTime`
    MicroTime,
    /// `intstr.IntOrString`
    IntOrString,
}

/// The start of the year 1, the first year of RFC 3339 and Go, in seconds.
const FIRST_SECOND: i64 = -62_135_596_800;

impl Form {
    pub(super) fn parse(text: &'static str) -> Option<Self> {
        Some(match text {
            "time" => Self::Time,
            "micro-time" => Self::MicroTime,
            "int-or-string" => Self::IntOrString,
            _ => Self::OneOf(text.strip_prefix("one-of ")?.split(' ').collect()),
        })
    }

    /// Returns the JSON value.
    ///
    /// # Errors
    /// If the fields don't form a valid value.
    pub(super) fn value(&self, mut fields: Map<String, Value>) -> Result<Value, String> {
        let number = |name: &str| fields.get(name).and_then(Value::as_i64).unwrap_or_default();
        match self {
            Self::Object => Ok(Value::Object(fields)),
            Self::OneOf(names) => Ok(match names.iter().find_map(|name| fields.remove(*name)) {
                None if names == &["items"] => json!([]),
                found => found.unwrap_or_default(),
            }),
            // Go encodes the zero time as an empty message, and the start of 1970 as zero seconds.
            Self::Time | Self::MicroTime if fields.is_empty() => Ok(Value::Null),
            Self::Time => Ok(meta::time(timestamp(number("seconds"), 0)?)),
            Self::MicroTime => {
                let at = timestamp(number("seconds"), number("nanos"))?;
                Ok(at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string().into())
            }
            Self::IntOrString => match number("type") {
                0 => Ok(number("intVal").into()),
                1 => Ok(fields.remove("strVal").unwrap_or_else(|| "".into())),
                _ => Err("impossible IntOrString.Type".into()),
            },
        }
    }
}

fn timestamp(seconds: i64, nanos: i64) -> Result<Timestamp, String> {
    let nanos = i32::try_from(nanos).ok().filter(|nanos| (0..1_000_000_000).contains(nanos));
    let at = nanos.filter(|_| seconds >= FIRST_SECOND).and_then(|nanos| Timestamp::new(seconds, nanos).ok());
    at.ok_or_else(|| "the time is out of range".into())
}
