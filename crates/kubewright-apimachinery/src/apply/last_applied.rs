//! Migration from client-side apply: the annotation in which kubectl stores the last applied configuration.
//!
//! kubectl itself moves the ownership of `kubectl-client-side-apply` to its server-side entry. A field whose value
//! equals the one in the annotation causes no conflict. Later applies update the annotation, so that users can return
//! to client-side apply.

use serde_json::Value;

use super::{compare::Comparison, fields::FieldSet, typed::Cursor};

/// The manager that this migration applies to.
pub(crate) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The size limit of an object's annotations, in bytes. kubectl, too, omits the annotation beyond this limit.
const LIMIT: usize = 256 * 1024;

/// Returns the fields that client-side apply set and that have not changed since.
pub(crate) fn unchanged(cursor: Cursor<'_>, live: &Value, group_version: &str) -> Option<FieldSet> {
    let applied: Value = serde_json::from_str(annotation(live)?).ok()?;
    if applied.get("apiVersion")?.as_str()? != group_version {
        return None;
    }
    let mut fields = cursor.claimed(&applied).ok()?;
    let since = Comparison::of(cursor, &applied, live);
    fields.remove(&since.changed);
    fields.remove(&since.removed);
    Some(fields)
}

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// Sets the annotation of `object`, if it has one, to the configuration being applied.
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
