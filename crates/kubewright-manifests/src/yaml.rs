//! Objects as YAML: keys in order, whole numbers without a fraction, so that the same objects always are the same text.

use serde::{Serialize, Serializer};
use serde_json::Value;
use thiserror::Error;

/// A text is no YAML, or an object holds what YAML can't.
#[derive(Debug, Error)]
#[error("no YAML: {0}")]
pub struct YamlError(String);

/// The text of some objects, each a document of its own.
///
/// # Errors
/// If one of them holds what YAML can't.
pub fn documents<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Result<String, YamlError> {
    let text = |object| serde_saphyr::to_string(&Plain(object)).map_err(|error| YamlError(error.to_string()));
    Ok(objects.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("---\n"))
}

/// The documents of a text.
///
/// # Errors
/// If it isn't YAML.
pub fn read(text: &str) -> Result<Vec<Value>, YamlError> {
    serde_saphyr::from_multiple(text).map_err(|error| YamlError(error.to_string()))
}

/// A value in plain form.
struct Plain<'a>(&'a Value);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            // A map keeps an order of its own if anyone in the program asks serde_json for that.
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().map(|(key, value)| (key, Plain(value))).collect();
                entries.sort_by_key(|(key, _)| *key);
                serializer.collect_map(entries)
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Plain)),
            Value::Number(number) => match number.as_f64().and_then(whole) {
                Some(whole) if number.is_f64() => whole.serialize(serializer),
                _ => number.serialize(serializer),
            },
            other => other.serialize(serializer),
        }
    }
}

/// A number without its fraction, if it has none. Limits of a schema are floating-point numbers, whatever they limit.
fn whole(number: f64) -> Option<i64> {
    /// The largest number below which each whole one is exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is in range")]
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_in_order_and_whole_numbers_whole() {
        let object = json!({"b": [{"z": 1, "a": 2.0}], "a": {"half": 0.5, "huge": 1e300, "text": "yes"}});
        let expected = "a:\n  half: 0.5\n  huge: 1.0e+300\n  text: \"yes\"\nb:\n- a: 2\n  z: 1\n";
        assert_eq!(documents([&object]).unwrap(), expected);
        assert_eq!(documents([&json!({"a": 1}), &json!({"b": 2})]).unwrap(), "a: 1\n---\nb: 2\n");
    }
}
