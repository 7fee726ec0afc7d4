//! Data that another version can't represent, kept in an annotation.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::ConversionError;

/// The annotation: a JSON object with an entry for each version.
pub const ANNOTATION: &str = "kubewright.dev/conversion-data";

/// Keeps data that only `version` can represent in the metadata of an object in another version, until it is converted
/// back.
///
/// Data of other versions is kept too, since an object may be converted from one spoke through the hub to another and
/// back. It counts towards the 256 KiB of an object's annotations.
///
/// # Errors
/// If the data can't be serialized as JSON.
pub fn keep(metadata: &mut ObjectMeta, version: &str, data: &impl Serialize) -> Result<(), ConversionError> {
    let mut all = read(metadata);
    all.insert(version.to_owned(), serde_json::to_value(data)?);
    write(metadata, all)
}

/// Removes and returns the data that [`keep`] has kept of `version`; `None` if nothing is kept, or if it is malformed,
/// since users can write annotations.
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
    fn each_version_restores_its_own_fields_and_keeps_the_others() {
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
    fn invalid_annotations_are_ignored_and_replaced() {
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
