//! Keywords without a counterpart in structural schemas.

use serde_json::Value;

use super::Place;

/// Returns the first keyword because of which kube-apiserver can't convert the document to a structural schema
/// (`NewStructural` in `apiextensions-apiserver`). Its structure is then not checked.
pub(super) fn find(place: &Place<'_>) -> Option<&'static str> {
    const KEYWORDS: [(&str, &str); 7] = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    let is_used = |keyword: &str| match place.value(keyword) {
        None => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(members)) if keyword != "additionalItems" => !members.is_empty(),
        Some(_) => true,
    };
    if let Some((_, shown)) = KEYWORDS.into_iter().find(|(keyword, _)| is_used(keyword)) {
        return Some(shown);
    }
    if place.value("items").is_some_and(Value::is_array) {
        return Some("items");
    }
    if place.value("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        return Some("x-kubernetes-preserve-unknown-fields");
    }
    place.children().iter().find_map(|(_, child)| find(child))
}
