//! One version of an object: its value, and the text that watchers and readers share.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::object_type;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The object was created.
    Added,
    /// The object was updated.
    Modified,
    /// The object was removed.
    Deleted,
}

impl ChangeKind {
    /// Returns the type of the watch event: `ADDED`, `MODIFIED`, `DELETED`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// The end of a watch event's line.
const FRAME_END: &[u8] = b"}\n";

/// A version of an object, in its stored form, immutable once written.
///
/// The JSON text is created once, on first use, outside of every lock. It is a complete watch event, of which the
/// object's text is a slice, so that one allocation serves readers and watchers.
///
/// A parsed value takes about ten times the memory of its text. The value of a version that isn't among the latest
/// is therefore [dropped](Self::drop_value): only the text and the data that lists and selectors read remain.
#[derive(Debug)]
pub(crate) struct Stored {
    revision: u64,
    change: ChangeKind,
    /// `None` after it was dropped. The text then exists.
    value: RwLock<Option<Arc<Value>>>,
    labels: Labels,
    api_version: Box<str>,
    size: Size,
    frame: OnceLock<Bytes>,
}

impl Stored {
    /// Creates a version written at `revision`, which becomes its `metadata.resourceVersion`.
    pub(crate) fn new(change: ChangeKind, revision: u64, mut value: Value) -> Self {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), Value::String(revision.to_string()));
        }
        Self::of(change, revision, value)
    }

    /// Creates a version that isn't stored, for a dry run. It has no revision.
    pub(crate) fn unsaved(value: Value) -> Self {
        Self::of(ChangeKind::Added, 0, value)
    }

    /// Returns the same version of the object with a converted value.
    pub(crate) fn with_value(&self, value: Value) -> Self {
        Self::of(self.change, self.revision, value)
    }

    /// Creates a version from its JSON text, which stays its text. `None` if it isn't the text of this revision.
    pub(crate) fn restored(change: ChangeKind, revision: u64, text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let version = value["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
        let stored = (version == Some(revision)).then(|| Self::of(change, revision, value))?;
        stored.frame.get_or_init(|| frame(change.as_str(), text));
        Some(stored)
    }

    /// Creates a new version from its JSON text, which is that of this revision, and what the text contains. Its value
    /// isn't kept.
    pub(crate) fn from_text<'a>(
        revision: u64,
        text: &[u8],
        api_version: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let change = ChangeKind::Added;
        let frame = OnceLock::from(frame(change.as_str(), text));
        let size = Size { text: text.len(), value: 0 };
        let (value, labels) = (RwLock::new(None), Labels::new(labels));
        Self { revision, change, value, labels, api_version: api_version.into(), size, frame }
    }

    fn of(change: ChangeKind, revision: u64, value: Value) -> Self {
        let size = Size::of(&value);
        let labels = value["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = Labels::new(labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())));
        let api_version = value["apiVersion"].as_str().unwrap_or_default().into();
        let value = RwLock::new(Some(Arc::new(value)));
        Self { revision, change, value, labels, api_version, size, frame: OnceLock::new() }
    }

    /// Returns the revision of the write.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the kind of the change.
    pub(crate) fn change(&self) -> ChangeKind {
        self.change
    }

    /// Returns the estimated memory of this version without its value, in bytes.
    pub(crate) fn text_memory(&self) -> usize {
        const WITHOUT_TEXT: usize = 300;
        WITHOUT_TEXT + self.size.text
    }

    /// Returns the estimated memory of the value in bytes.
    pub(crate) fn value_memory(&self) -> usize {
        self.size.value
    }

    /// Returns the memory of this version as it is now, in bytes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        let value = self.value.read().as_ref().map_or(0, |value| Size::of(value).value);
        let text = self.frame.get().map_or(0, Bytes::len);
        size_of::<Self>() + self.labels.0.len() + self.api_version.len() + text + value
    }

    /// Returns the object's `apiVersion`.
    pub(crate) fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// Returns the object. A version without its value is parsed on each call.
    pub(crate) fn value(&self) -> Arc<Value> {
        if let Some(value) = &*self.value.read() {
            return value.clone();
        }
        // The text was created from a value, so it can be parsed.
        Arc::new(serde_json::from_slice(&self.json()).unwrap_or_default())
    }

    /// Returns the object or, for a version without its value, an [`Outline`] of it.
    pub(crate) fn outline(&self) -> Arc<Value> {
        if let Some(value) = &*self.value.read() {
            return value.clone();
        }
        let outline = serde_json::from_slice(&self.json()).and_then(|outline: Outline| serde_json::to_value(outline));
        Arc::new(outline.unwrap_or_default())
    }

    /// Drops the value and keeps the text.
    pub(crate) fn drop_value(&self) {
        self.frame();
        self.value.write().take();
    }

    /// Parses the value again if it was dropped, and keeps it.
    pub(crate) fn keep_value(&self) {
        let value = self.value();
        self.value.write().get_or_insert(value);
    }

    /// Returns the complete watch event of this version, with a newline.
    pub(crate) fn frame(&self) -> Bytes {
        let make = || {
            // Growing step by step would copy the text repeatedly.
            let mut text = Vec::with_capacity(64 + self.size.text);
            text.extend_from_slice(frame_start(self.change).as_bytes());
            if let Some(value) = &*self.value.read() {
                object_type::write(value, &mut text);
            }
            text.extend_from_slice(FRAME_END);
            text.shrink_to_fit();
            Bytes::from(text)
        };
        self.frame.get_or_init(make).clone()
    }

    /// Returns the object's JSON text.
    pub(crate) fn json(&self) -> Bytes {
        let frame = self.frame();
        frame.slice(frame_start(self.change).len()..frame.len() - FRAME_END.len())
    }
}

/// What an object is, who owns it, and whether it is being deleted.
#[derive(Debug, Deserialize, Serialize)]
struct Outline {
    metadata: OutlineMetadata,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct OutlineMetadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    uid: String,
    resource_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_references: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finalizers: Option<Value>,
}

/// Returns the text of a watch event before its object.
fn frame_start(change: ChangeKind) -> &'static str {
    match change {
        ChangeKind::Added => r#"{"type":"ADDED","object":"#,
        ChangeKind::Modified => r#"{"type":"MODIFIED","object":"#,
        ChangeKind::Deleted => r#"{"type":"DELETED","object":"#,
    }
}

/// Returns a watch event of any type with an object's JSON text.
pub(crate) fn frame(kind: &str, object: &[u8]) -> Bytes {
    let start = format!(r#"{{"type":"{kind}","object":"#);
    Bytes::from([start.as_bytes(), object, FRAME_END].concat())
}

/// The labels of an object, in one allocation: keys and values, each with an end. Neither contains it.
#[derive(Debug)]
struct Labels(Box<str>);

impl Labels {
    const END: char = '\0';

    fn new<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut text = String::new();
        for (key, value) in labels {
            for part in [key, value] {
                text.push_str(part);
                text.push(Self::END);
            }
        }
        Self(text.into())
    }

    fn get(&self, key: &str) -> Option<&str> {
        let mut parts = self.0.split_terminator(Self::END);
        while let (Some(label), Some(value)) = (parts.next(), parts.next()) {
            if label == key {
                return Some(value);
            }
        }
        None
    }
}

/// The estimated memory of an object in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    /// That of its text.
    text: usize,
    /// That of its value.
    value: usize,
}

impl Size {
    /// The memory of a node of a map, which has up to eleven entries.
    const NODE: usize = 648;
    /// The usual number of entries of a node of a map with several nodes.
    const ENTRIES: usize = 8;
    /// What the allocator adds to a string.
    const STRING: usize = 16;

    fn of(value: &Value) -> Self {
        let mut size = Self::default();
        size.add(value);
        size
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) => self.text += 5,
            Value::Number(number) => self.text += number.as_i64().map_or(20, digits),
            Value::String(text) => {
                self.text += text.len() + 2;
                self.value += text.len() + Self::STRING;
            }
            Value::Array(items) => {
                self.text += 2 + items.len();
                self.value += size_of_val(items.as_slice());
                items.iter().for_each(|item| self.add(item));
            }
            Value::Object(fields) => {
                self.text += 2;
                self.value += fields.len().div_ceil(if fields.len() > 11 { Self::ENTRIES } else { 11 }) * Self::NODE;
                for (key, value) in fields {
                    self.text += key.len() + 4;
                    self.value += key.len() + Self::STRING;
                    self.add(value);
                }
            }
        }
    }
}

/// Returns the length of a number as text.
fn digits(number: i64) -> usize {
    let digits = number.unsigned_abs().checked_ilog10().map_or(1, |log| log as usize + 1);
    digits + usize::from(number < 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_an_object_is_a_slice_of_its_event() {
        let stored = Stored::new(ChangeKind::Modified, 7, json!({"metadata": {"name": "a"}}));
        assert_eq!(stored.json(), r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#);
        assert_eq!(
            stored.frame(),
            "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"7\"}}}\n"
        );
        assert_eq!(frame("MODIFIED", &stored.json()), stored.frame());
    }

    #[test]
    fn dropping_the_value_changes_nothing_but_memory() {
        let stored =
            Stored::new(ChangeKind::Added, 7, json!({"metadata": {"labels": {"a": "b"}}, "data": [1.5, "x", null]}));
        let warm = stored.value();
        stored.drop_value();
        assert_eq!(*stored.value(), *warm);
        assert_eq!((stored.label("a"), stored.label("b")), (Some("b"), None));
        stored.drop_value();
        assert_eq!(stored.json(), serde_json::to_vec(&*warm).unwrap());
    }

    #[test]
    fn an_outline_is_read_from_the_text() {
        let metadata = json!({
            "name": "a", "uid": "u", "resourceVersion": "7", "finalizers": ["f"], "labels": {"a": "b"},
            "ownerReferences": [{"uid": "v"}], "deletionTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}],
        });
        let object = json!({"metadata": metadata, "data": {"a": "b"}});
        let stored = Stored::new(ChangeKind::Added, 7, object.clone());
        assert_eq!(*stored.outline(), object);
        stored.drop_value();
        let mut outline = json!({"metadata": metadata});
        for field in ["labels", "managedFields"] {
            outline["metadata"].as_object_mut().unwrap().remove(field);
        }
        assert_eq!(*stored.outline(), outline);
        stored.keep_value();
        assert_eq!(*stored.outline(), object);
    }

    #[test]
    fn the_estimated_size_of_the_text_is_about_right() {
        for value in [json!({}), json!({"a": [1, -20, 1.5, null, true, false], "b": {"c": "d"}}), json!(["", 0])] {
            let (size, text) = (Size::of(&value).text, value.to_string().len());
            assert!(size >= text && size <= text + 25, "{value}: {size}, {text}");
        }
    }
}
