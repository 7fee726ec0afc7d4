//! The bridge from client-side apply: the annotation in which kubectl remembers what it applied last.
//!
//! kubectl moves the ownership of `kubectl-client-side-apply` to its server-side entry by itself. What is left to the
//! server is that a field is no conflict as long as it is as that annotation says, and that the annotation follows
//! later applies, so that a return to client-side apply works.

use serde_json::Value;

use super::{compare::Comparison, fields::FieldSet, typed::Cursor};

/// The manager for whom this is done.
pub(crate) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Bytes that all annotations of an object may have; beyond, kubectl leaves the annotation out, too.
const LIMIT: usize = 256 * 1024;

/// The fields that were applied from the client and have not changed since.
pub(crate) fn unchanged(cursor: Cursor<'_>, live: &Value, group_version: &str) -> Option<FieldSet> {
    let applied: Value = serde_json::from_str(annotation(live)?).ok()?;
    if applied.get("apiVersion")?.as_str()? != group_version {
        return None;
    }
    let mut fields = cursor.claimed(&applied).ok()?;
    let since = Comparison::of(cursor, &applied, live);
    fields.subtract(&since.changed);
    fields.subtract(&since.removed);
    Some(fields)
}

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()
}

/// Brings the annotation of `object`, if it has one, up to what is applied now.
pub(crate) fn follow(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{config}\n");
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    let others: usize = annotations
        .iter()
        .filter(|(name, _)| *name != ANNOTATION)
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum();
    if others + ANNOTATION.len() + text.len() <= LIMIT {
        annotations.insert(ANNOTATION.to_owned(), text.into());
    } else {
        annotations.remove(ANNOTATION);
    }
}
