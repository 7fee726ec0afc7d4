//! Deterministic YAML: sorted keys, and whole numbers without a fraction.

use kubewright_apimachinery::decode::yaml_documents;
use serde::{Serialize, Serializer};
use serde_json::Value;
use thiserror::Error;

/// Invalid YAML, or a value that YAML cannot represent.
#[derive(Debug, Error)]
#[error("invalid YAML: {0}")]
pub struct YamlError(String);

/// Writes objects as documents.
///
/// # Errors
/// Returns an error if a value cannot be written as YAML.
pub fn documents<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Result<String, YamlError> {
    let text = |object| serde_saphyr::to_string(&Plain(object)).map_err(|error| YamlError(error.to_string()));
    Ok(objects.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("---\n"))
}

/// Writes an object with each text on the line of its key, as kubectl writes kubeconfigs. Scripts read those by lines,
/// and would find only the beginning of a block.
///
/// # Errors
/// Returns an error if a value cannot be written as YAML.
pub fn without_blocks(object: &Value) -> Result<String, YamlError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&Plain(object), options).map_err(|error| YamlError(error.to_string()))
}

/// Parses the documents of a text.
///
/// # Errors
/// Returns an error if the text is not YAML.
pub fn read(text: &str) -> Result<Vec<Value>, YamlError> {
    yaml_documents(text).map_err(|error| YamlError(error.to_string()))
}

/// A value with sorted keys and plain numbers.
struct Plain<'a>(&'a Value);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            // Maps of serde_json are not sorted if some crate in the program enables that feature.
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

/// Converts a whole number to an integer. Limits in a schema are floating-point numbers, whatever they limit.
fn whole(number: f64) -> Option<i64> {
    /// The largest number up to which all integers are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is in range")]
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_and_whole_numbers_have_no_fraction() {
        let object = json!({"b": [{"z": 1, "a": 2.0}], "a": {"half": 0.5, "huge": 1e300, "text": "yes"}});
        let expected = "a:\n  half: 0.5\n  huge: 1.0e+300\n  text: \"yes\"\nb:\n- a: 2\n  z: 1\n";
        assert_eq!(documents([&object]).unwrap(), expected);
        assert_eq!(documents([&json!({"a": 1}), &json!({"b": 2})]).unwrap(), "a: 1\n---\nb: 2\n");
    }

    #[test]
    fn long_texts_can_stay_on_their_lines() {
        let long = "LS0t".repeat(100);
        let object = json!({"key": long, "lines": "a\nb\n"});
        let text = without_blocks(&object).unwrap();
        assert_eq!(text, format!("key: {long}\nlines: \"a\\nb\\n\"\n"));
        assert_eq!(read(&text).unwrap(), [object]);
    }
}
