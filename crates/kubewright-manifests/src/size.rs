//! The size of CustomResourceDefinitions. `kubectl apply` keeps a copy of an object in an annotation, and all
//! annotations together are limited to [`LIMIT`] bytes. A larger definition needs server-side apply or
//! `kubectl create`.

use serde_json::Value;

/// The limit for all annotations of an object in bytes (`TotalAnnotationSizeLimitB` of Kubernetes'
/// `apimachinery/pkg/api/validation`).
pub const LIMIT: usize = 262_144;

/// Returns the size of an object in the annotation of `kubectl apply`, in bytes.
pub fn bytes(object: &Value) -> usize {
    object.to_string().len()
}

/// Returns the largest fields of `spec` and `status`, such as `v1 spec.template`, with their sizes in bytes: at most
/// `count`, the largest first.
pub fn largest(definition: &Value, count: usize) -> Vec<(String, usize)> {
    let mut fields = Vec::new();
    for version in definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten() {
        let name = version["name"].as_str().unwrap_or_default();
        for (part, schema) in properties(&version["schema"]["openAPIV3Schema"]) {
            fields.extend(properties(schema).map(|(field, schema)| (format!("{name} {part}.{field}"), bytes(schema))));
        }
    }
    fields.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    fields.truncate(count);
    fields
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

/// Cuts descriptions to a number of bytes, at the end of a sentence or word if possible, as controller-gen's
/// `maxDescLen` does; 0 removes them.
pub fn shorten(definition: &mut Value, max: usize) {
    for version in definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            shorten_schema(schema, max);
        }
    }
}

/// Visits schemas only: a field may be named `description`, and a default value may have such a field.
fn shorten_schema(schema: &mut Value, max: usize) {
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(Value::String(text)) = schema.get_mut("description") {
        match cut(text, max) {
            "" => drop(schema.remove("description")),
            short => *text = short.to_owned(),
        }
    }
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                fields.values_mut().for_each(|schema| shorten_schema(schema, max));
            }
            ("items" | "additionalProperties" | "not", schema) => shorten_schema(schema, max),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(|schema| shorten_schema(schema, max));
            }
            _ => {}
        }
    }
}

fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let start = &text[..text.floor_char_boundary(max)];
    let sentence = start.rfind(['.', '!', '?']).map(|end| &start[..=end]);
    let words = || start.rfind(char::is_whitespace).map(|end| start[..end].trim_end());
    sentence.or_else(words).unwrap_or(start)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(spec: Value) -> Value {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}});
        json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}})
    }

    #[test]
    fn texts_are_cut_at_sentences_or_words() {
        for (max, expected) in [
            (0, ""),
            (3, "The"),
            (9, "The"),
            (12, "The first."),
            (20, "The first. A second!"),
            (19, "The first."),
            (99, "The first. A second! Ünd"),
            (22, "The first. A second!"),
        ] {
            assert_eq!(cut("The first. A second! Ünd", max), expected, "{max}");
        }
        assert_eq!(cut("Ünd", 1), "", "never within a letter");
    }

    #[test]
    fn only_descriptions_are_cut() {
        let field = json!({
            "type": "object", "description": "A text.", "default": {"description": "kept"},
            "properties": {"description": {"type": "string", "description": "Another."}},
        });
        let mut cow = definition(json!({"field": field}));
        shorten(&mut cow, 0);
        let expected = json!({
            "type": "object", "default": {"description": "kept"}, "properties": {"description": {"type": "string"}},
        });
        assert_eq!(cow, definition(json!({"field": expected})));
    }

    #[test]
    fn the_largest_fields_come_first() {
        let cow = definition(json!({"a": {"type": "string"}, "b": {"type": "string", "pattern": "a".repeat(100)}}));
        let fields = largest(&cow, 1);
        assert_eq!(fields, [("v1 spec.b".to_owned(), 130)]);
    }
}
