//! One version of one object: its value, and the bytes that watchers and readers share.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was created.
    Added,
    /// It was updated.
    Modified,
    /// It was removed.
    Deleted,
}

impl ChangeKind {
    /// The type of the watch event: `ADDED`, `MODIFIED`, `DELETED`.
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
/// The JSON text is made once, by whoever needs it first, and outside of every lock. It is made as a whole watch event, of
/// which the object's own text is a slice, so that one allocation serves readers and watchers.
#[derive(Debug)]
pub(crate) struct Stored {
    revision: u64,
    change: ChangeKind,
    value: Arc<Value>,
    weight: usize,
    frame: OnceLock<Bytes>,
}

impl Stored {
    /// A version written at `revision`, which goes into the object as `metadata.resourceVersion`.
    pub(crate) fn new(change: ChangeKind, revision: u64, mut value: Value) -> Self {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), Value::String(revision.to_string()));
        }
        let weight = weight(&value);
        Self { revision, change, value: Arc::new(value), weight, frame: OnceLock::new() }
    }

    /// A version that was not written (a dry run): it carries no revision.
    pub(crate) fn rehearsed(value: Value) -> Self {
        Self { revision: 0, change: ChangeKind::Added, value: Arc::new(value), weight: 0, frame: OnceLock::new() }
    }

    /// The revision of the write.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// What the write did.
    pub(crate) fn change(&self) -> ChangeKind {
        self.change
    }

    /// Roughly the memory it takes, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    /// The object.
    pub(crate) fn value(&self) -> &Arc<Value> {
        &self.value
    }

    /// The whole watch event of this version, newline included.
    pub(crate) fn frame(&self) -> Bytes {
        self.frame
            .get_or_init(|| {
                let mut text = Vec::with_capacity(1024);
                text.extend_from_slice(&frame_start(self.change));
                // Writing a value into a vector cannot fail: keys are strings and numbers are finite.
                let _ = serde_json::to_writer(&mut text, &*self.value);
                text.extend_from_slice(FRAME_END);
                text.shrink_to_fit();
                Bytes::from(text)
            })
            .clone()
    }

    /// The object's JSON text.
    pub(crate) fn json(&self) -> Bytes {
        let frame = self.frame();
        frame.slice(frame_start(self.change).len()..frame.len() - FRAME_END.len())
    }
}

fn frame_start(change: ChangeKind) -> Vec<u8> {
    format!(r#"{{"type":"{}","object":"#, change.as_str()).into_bytes()
}

/// A watch event of any type around an object's JSON text.
pub(crate) fn frame(kind: &str, object: &[u8]) -> Bytes {
    let start = format!(r#"{{"type":"{kind}","object":"#);
    Bytes::from([start.as_bytes(), object, FRAME_END].concat())
}

/// Roughly how much memory a value takes, in bytes. Used for bounds, so a cheap estimate will do.
fn weight(value: &Value) -> usize {
    const NODE: usize = 40;
    match value {
        Value::String(text) => NODE + text.len(),
        Value::Array(items) => NODE + items.iter().map(weight).sum::<usize>(),
        Value::Object(fields) => {
            NODE + fields.iter().map(|(key, value)| NODE + key.len() + weight(value)).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => NODE,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_objects_text_is_a_slice_of_the_event() {
        let stored = Stored::new(ChangeKind::Modified, 7, json!({"metadata": {"name": "a"}}));
        assert_eq!(stored.json(), r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#);
        assert_eq!(
            stored.frame(),
            "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"7\"}}}\n"
        );
        assert_eq!(frame("MODIFIED", &stored.json()), stored.frame());
    }
}
