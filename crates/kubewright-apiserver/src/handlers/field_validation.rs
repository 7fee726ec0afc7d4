//! Unknown and duplicate fields of bodies, which strict field validation refuses, and of which clients are warned
//! otherwise (<https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation>).

use kubewright_apimachinery::{decode, document_order};
use serde_json::Value;

use super::query::FieldValidation;

/// The maximum number of fields that are reported.
const LIMIT: usize = 100;

/// Returns the warnings about the unknown fields of a body, given by their paths, and the duplicate ones, given by
/// their messages. `text` is the JSON text that Kubernetes decodes into a struct, if it does.
///
/// # Errors
/// Returns the reason for which strict validation refuses the body.
pub(super) fn validate(
    unknown: &[String],
    duplicates: Vec<String>,
    text: Option<&[u8]>,
    validation: FieldValidation,
) -> Result<Vec<String>, String> {
    if validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    let message = |path: &String| format!("unknown field \"{path}\"");
    let problems = match text {
        Some(text) => in_document(unknown.iter().map(message).collect(), duplicates, unknown, text),
        // The text is parsed, and its duplicate fields are found, before it becomes an object of its type.
        None if validation == FieldValidation::Strict => {
            decode::strict_errors(duplicates).into_iter().chain(unknown.iter().map(message)).collect()
        }
        None => duplicates.into_iter().chain(unknown.iter().map(message)).collect(),
    };
    if validation == FieldValidation::Strict && !problems.is_empty() {
        return Err(format!("strict decoding error: {}", problems.join(", ")));
    }
    Ok(problems)
}

/// Returns the messages about the unknown and duplicate fields of the operations of a JSON patch. `text` is the patch.
pub(super) fn of_operations(operations: &Value, duplicates: Vec<String>, text: &[u8]) -> Vec<String> {
    const KNOWN: [&str; 4] = ["op", "path", "from", "value"];
    let operations = operations.as_array().into_iter().flatten().enumerate();
    let fields = operations.flat_map(|(index, operation)| {
        let fields = operation.as_object().into_iter().flat_map(|fields| fields.keys());
        fields.filter(|field| !KNOWN.contains(&field.as_str())).map(move |field| format!("[{index}].{field}"))
    });
    let unknown: Vec<_> = fields.take(LIMIT).collect();
    let messages = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    let messages = in_document(messages, duplicates, &unknown, text);
    messages.into_iter().map(|message| format!("json patch {message}")).collect()
}

/// Returns the messages in the order of the document.
fn in_document(
    unknown: Vec<String>,
    mut duplicates: Vec<String>,
    unknown_paths: &[String],
    text: &[u8],
) -> Vec<String> {
    // Go skips the values of unknown fields.
    duplicates.retain(|message| !unknown_paths.iter().any(|path| is_at_or_below(duplicate_path(message), path)));
    if unknown.len() + duplicates.len() < 2 {
        return [unknown, duplicates].concat();
    }
    let first = unknown_paths.iter().map(|path| (path.as_str(), 0));
    let second = duplicates.iter().map(|message| (duplicate_path(message), 1));
    let fields: Vec<_> = first.chain(second).collect();
    let places = document_order::places(text, &fields);
    let mut messages: Vec<_> = places.into_iter().zip([unknown, duplicates].concat()).collect();
    messages.sort_by_key(|(place, _)| *place);
    messages.truncate(LIMIT);
    messages.into_iter().map(|(_, message)| message).collect()
}

/// Returns the path in the message about a duplicate field.
fn duplicate_path(message: &str) -> &str {
    let quoted = message.strip_prefix("duplicate field \"").and_then(|rest| rest.strip_suffix('"'));
    quoted.unwrap_or(message)
}

fn is_at_or_below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: Option<&str>, expect: &[&str]) {
        let unknown = ["a.x", "b", "y[0]"].map(str::to_owned);
        let duplicates = ["a", "a.c", "a.x.d", "b", "y"].map(|path| format!("duplicate field \"{path}\""));
        let text = text.map(str::as_bytes);
        let validate = |validation| validate(&unknown, duplicates.clone().into(), text, validation);
        let expect: Vec<_> = expect.iter().map(|field| field.replace(' ', " field ")).collect();
        assert_eq!(validate(FieldValidation::Warn).unwrap(), expect);
        assert_eq!(validate(FieldValidation::Ignore).unwrap(), [""; 0]);
        let why = validate(FieldValidation::Strict).unwrap_err();
        assert_eq!(why, format!("strict decoding error: {}", expect.join(", ")));
    }

    #[test]
    fn fields_are_reported_in_the_order_of_the_text() {
        let text = r#"{"y": [{}], "b": 1, "y": [], "a": {}, "a": {"c": 1, "x": {"d": 1, "d": 2}, "c": 2}, "b": 2}"#;
        let expect = [
            r#"unknown "y[0]""#,
            r#"unknown "b""#,
            r#"duplicate "y""#,
            r#"duplicate "a""#,
            r#"unknown "a.x""#,
            r#"duplicate "a.c""#,
        ];
        check(Some(text), &expect);
    }

    #[test]
    fn duplicates_come_first_without_a_text() {
        let expect = [
            r#"duplicate "a""#,
            r#"duplicate "a.c""#,
            r#"duplicate "a.x.d""#,
            r#"duplicate "b""#,
            r#"duplicate "y""#,
            r#"unknown "a.x""#,
            r#"unknown "b""#,
            r#"unknown "y[0]""#,
        ];
        check(None, &expect);
    }
}
