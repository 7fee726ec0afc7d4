//! What has no place in the other version, in an annotation of it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::ConversionError;

/// The annotation that holds it: a JSON object, by the version that the data is of.
pub const ANNOTATION: &str = "kubewright.dev/conversion-data";

/// Keeps what only `version` can say in the metadata of an object in another one, for when it is converted back.
///
/// Other versions' data stays: an object may go from one spoke by way of the hub to another, and back. It counts towards the
/// 256 KiB that all annotations of an object may have.
///
/// # Errors
/// When the data can't be written as JSON.
pub fn keep(metadata: &mut ObjectMeta, version: &str, data: &impl Serialize) -> Result<(), ConversionError> {
    let mut all = read(metadata);
    all.insert(version.to_owned(), serde_json::to_value(data)?);
    write(metadata, all)
}

/// Takes back what [`keep`] has kept of `version`, which the metadata then no longer holds; none if there is nothing, or
/// nothing of this form: users can write annotations.
pub fn take<T: DeserializeOwned>(metadata: &mut ObjectMeta, version: &str) -> Option<T> {
    let mut all = read(metadata);
    let data = all.remove(version)?;
    write(metadata, all).ok()?;
    serde_json::from_value(data).ok()
}

fn read(metadata: &ObjectMeta) -> BTreeMap<String, Value> {
    let text = metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn write(metadata: &mut ObjectMeta, all: BTreeMap<String, Value>) -> Result<(), ConversionError> {
    let annotations = metadata.annotations.get_or_insert_default();
    if all.is_empty() {
        annotations.remove(ANNOTATION);
    } else {
        annotations.insert(ANNOTATION.into(), serde_json::to_string(&all)?);
    }
    if annotations.is_empty() {
        metadata.annotations = None;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_finds_its_own_and_leaves_the_others() {
        let mut metadata = ObjectMeta::default();
        keep(&mut metadata, "v1", &"one").unwrap();
        keep(&mut metadata, "v2", &2).unwrap();
        assert_eq!(take::<String>(&mut metadata, "v3"), None);
        assert_eq!(take::<String>(&mut metadata, "v1").as_deref(), Some("one"));
        assert_eq!(take::<String>(&mut metadata, "v1"), None);
        assert_eq!(metadata.annotations.as_ref().unwrap()[ANNOTATION], r#"{"v2":2}"#);
        assert_eq!(take::<i32>(&mut metadata, "v2"), Some(2));
        assert_eq!(metadata, ObjectMeta::default(), "it was never there");
    }

    #[test]
    fn what_a_user_wrote_there_is_no_data() {
        for text in ["", "{", "7", r#"{"v1": {"a": 1}}"#] {
            let annotations = [(ANNOTATION.to_owned(), text.to_owned()), ("other".into(), "x".into())];
            let mut metadata = ObjectMeta { annotations: Some(annotations.into()), ..ObjectMeta::default() };
            assert_eq!(take::<String>(&mut metadata, "v1"), None, "{text}");
            keep(&mut metadata, "v1", &"one").unwrap();
            assert_eq!(take::<String>(&mut metadata, "v1").as_deref(), Some("one"));
            assert_eq!(metadata.annotations.unwrap().len(), 1);
        }
    }
}
