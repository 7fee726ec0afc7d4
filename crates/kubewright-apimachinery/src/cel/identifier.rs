//! The identifiers of fields, whose names may have characters that identifiers can't have
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>).

use std::borrow::Cow;

/// Reserved words of the language, which can't be identifiers.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Returns whether a field can be selected by its own name, although the name is also escaped: a reserved word that
/// isn't a token of the language.
pub(crate) fn is_alias(name: &str) -> bool {
    RESERVED.contains(&name) && !matches!(name, "true" | "false" | "null" | "in")
}

/// Returns the identifier of a field in rules, or `None` if it has none.
pub(crate) fn escape(name: &str) -> Option<Cow<'_, str>> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__").into());
    }
    let letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'.' | b'-' | b'/');
    let first = name.bytes().next()?;
    if !letter(first) || !name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit()) {
        return None;
    }
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return Some(name.into());
    }
    let escaped = name.replace("__", "__underscores__");
    let escaped = escaped.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__");
    Some(escaped.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_words_are_also_selected_as_they_are() {
        assert!(["for", "namespace", "while"].into_iter().all(is_alias));
        assert!(!["true", "in", "replicas", "a-b"].into_iter().any(is_alias));
    }

    #[test]
    fn names_are_escaped() {
        for (name, expect) in [
            ("replicas", Some("replicas")),
            ("my_field", Some("my_field")),
            ("redact__d", Some("redact__underscores__d")),
            ("namespace", Some("__namespace__")),
            ("x-prop", Some("x__dash__prop")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("0day", None),
            ("ü", None),
            ("", None),
        ] {
            assert_eq!(escape(name).as_deref(), expect, "{name}");
        }
    }
}
