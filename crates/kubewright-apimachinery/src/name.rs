//! The syntax of names, labels and annotations.
//!
//! Each check returns one message per violation, in Kubernetes' wording and without the field. An empty list means that
//! the text is valid, and doesn't allocate. The rules are those of
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/> and
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>.

use std::fmt::Write as _;

use serde_json::Value;

use crate::status::Cause;

/// The size limit of an object's annotations, keys and values together, in bytes.
pub const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// The number of bytes of `metadata.generateName` that are used. Five random characters extend the name to at most 63.
pub const GENERATE_NAME_LIMIT: usize = 58;

const LABEL_LIMIT: usize = 63;
const SUBDOMAIN_LIMIT: usize = 253;

/// A syntax rule, as messages describe it.
struct Rule {
    sentence: &'static str,
    regex: &'static str,
    examples: &'static [&'static str],
}

impl Rule {
    fn message(&self) -> String {
        let mut text = format!("{} (", self.sentence);
        for (index, example) in self.examples.iter().enumerate() {
            let lead = if index == 0 { "e.g. " } else { " or " };
            let _ = write!(text, "{lead}'{example}', ");
        }
        let _ = write!(text, "regex used for validation is '{}')", self.regex);
        text
    }
}

const DNS1123_SUBDOMAIN: Rule = Rule {
    sentence: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
               start and end with an alphanumeric character",
    regex: r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    examples: &["example.com"],
};
const DNS1123_LABEL: Rule = Rule {
    sentence: "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
               and end with an alphanumeric character",
    regex: "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    examples: &["my-name", "123-abc"],
};
const DNS1035_LABEL: Rule = Rule {
    sentence: "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
               character, and end with an alphanumeric character",
    regex: "[a-z]([-a-z0-9]*[a-z0-9])?",
    examples: &["my-name", "abc-123"],
};
const LABEL_KEY: Rule = Rule {
    sentence: "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
               character",
    regex: "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    examples: &["MyName", "my.name", "123-abc"],
};
const LABEL_VALUE: Rule = Rule {
    sentence: "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
               start and end with an alphanumeric character",
    regex: "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
    examples: &["MyValue", "my_value", "12345"],
};
const CONFIG_KEY: Rule = Rule {
    sentence: "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    regex: "[-._a-zA-Z0-9]+",
    examples: &["key.name", "KEY_NAME", "key-name"],
};

/// The message about a long name. Like Kubernetes, it counts bytes as characters, which are the same in valid names.
fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

/// The message about a long part of a label. Kubernetes words it otherwise than that about a name.
fn too_many_bytes(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Returns whether a text is not empty, consists of `inner` bytes, and begins and ends with `edge` bytes.
fn is_framed(text: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [one] => edge(*one),
        [first, middle @ .., last] => edge(*first) && edge(*last) && middle.iter().all(|byte| inner(*byte)),
    }
}

fn is_dns_label(text: &str) -> bool {
    is_framed(text, is_lower_alphanumeric, |byte| is_lower_alphanumeric(byte) || byte == b'-')
}

fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_label_text(text: &str) -> bool {
    is_framed(
        text,
        |byte| byte.is_ascii_alphanumeric(),
        |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'),
    )
}

/// Checks a DNS subdomain (RFC 1123) of up to 253 bytes, the syntax of most object names.
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > SUBDOMAIN_LIMIT {
        wrong.push(too_long(SUBDOMAIN_LIMIT));
    }
    if !is_dns_subdomain(name) {
        wrong.push(DNS1123_SUBDOMAIN.message());
    }
    wrong
}

/// Checks a DNS label (RFC 1123) of up to 63 bytes, the syntax of the names of namespaces and containers.
pub fn dns1123_label(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > LABEL_LIMIT {
        wrong.push(too_long(LABEL_LIMIT));
    }
    if !is_dns_label(name) {
        wrong.push(if is_dns_subdomain(name) { "must not contain dots".into() } else { DNS1123_LABEL.message() });
    }
    wrong
}

/// Checks a DNS label (RFC 1035) of up to 63 bytes that doesn't begin with a digit, the syntax of the names in a CRD.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > LABEL_LIMIT {
        wrong.push(too_long(LABEL_LIMIT));
    }
    if !is_dns_label(name) || name.starts_with(|first: char| first.is_ascii_digit()) {
        wrong.push(DNS1035_LABEL.message());
    }
    wrong
}

/// Checks a segment of a URL's path, the syntax for the few kinds that don't use DNS names, such as roles.
pub fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." => vec!["may not be '.'".into()],
        ".." => vec!["may not be '..'".into()],
        _ => ['/', '%'].iter().filter(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'")).collect(),
    }
}

/// Checks a label key, a "qualified name": an optional DNS prefix and `/`, followed by up to 63 bytes. Finalizers and
/// condition types have the same syntax.
pub fn label_key(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((prefix, name)) => (Some(prefix), name),
    };
    if name.contains('/') {
        let rule = LABEL_KEY.message();
        return vec![format!(
            "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )];
    }
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".into()),
        Some(prefix) => {
            if prefix.len() > SUBDOMAIN_LIMIT {
                wrong.push(format!("prefix part {}", too_many_bytes(SUBDOMAIN_LIMIT)));
            }
            if !is_dns_subdomain(prefix) {
                wrong.push(format!("prefix part {}", DNS1123_SUBDOMAIN.message()));
            }
        }
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    } else if name.len() > LABEL_LIMIT {
        wrong.push(format!("name part {}", too_many_bytes(LABEL_LIMIT)));
    }
    if !is_label_text(name) {
        wrong.push(format!("name part {}", LABEL_KEY.message()));
    }
    wrong
}

/// Checks a label value: empty, or up to 63 bytes.
pub fn label_value(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > LABEL_LIMIT {
        wrong.push(too_many_bytes(LABEL_LIMIT));
    }
    if !value.is_empty() && !is_label_text(value) {
        wrong.push(LABEL_VALUE.message());
    }
    wrong
}

/// Checks a key of a ConfigMap's or Secret's data.
pub fn config_key(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if key.len() > SUBDOMAIN_LIMIT {
        wrong.push(too_long(SUBDOMAIN_LIMIT));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(allowed) {
        wrong.push(CONFIG_KEY.message());
    }
    match key {
        "." => wrong.push("must not be '.'".into()),
        ".." => wrong.push("must not be '..'".into()),
        _ if key.starts_with("..") => wrong.push("must not start with '..'".into()),
        _ => {}
    }
    wrong
}

/// Checks a port name of up to 15 bytes (RFC 6335, lower case only).
pub fn port_name(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > 15 {
        wrong.push(too_long(15));
    }
    if name.is_empty() || !name.bytes().all(|byte| is_lower_alphanumeric(byte) || byte == b'-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".into());
    }
    if name.contains("--") {
        wrong.push("must not contain consecutive hyphens".into());
    }
    if name.starts_with('-') || name.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".into());
    }
    wrong
}

/// Checks `metadata.generateName` by the rule for the generated name. A trailing `-` is valid, since characters are
/// appended.
pub fn generate_name(base: &str, rule: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    match base.strip_suffix('-') {
        Some(stem) if !stem.is_empty() => rule(&format!("{stem}a")),
        _ => rule(base),
    }
}

/// Returns the part of `metadata.generateName` that the generated name begins with: its first 58 bytes.
pub fn generate_name_base(base: &str) -> &str {
    let mut end = base.len().min(GENERATE_NAME_LIMIT);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    &base[..end]
}

/// Checks an object's labels. Values that are not strings are left to the schema's validation.
pub fn labels(field: &str, labels: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        causes.extend(label_key(key).iter().map(|why| Cause::invalid(field, &Value::from(key.as_str()), why)));
        let text = value.as_str().unwrap_or_default();
        causes.extend(label_value(text).iter().map(|why| Cause::invalid(field, value, why)));
    }
    causes
}

/// Checks an object's annotations: their keys, ignoring case, and their total size.
pub fn annotations(field: &str, annotations: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let wrong = label_key(&key.to_ascii_lowercase());
        causes.extend(wrong.iter().map(|why| Cause::invalid(field, &Value::from(key.as_str()), why)));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        let message = format!("Too long: may not be more than {ANNOTATIONS_LIMIT} bytes");
        causes.push(Cause::new("FieldValueTooLong", field, message));
    }
    causes
}

/// Returns an `apiVersion` as it is usually written: the group before the slash of `/v1` is the core group, which has
/// no name.
pub fn api_version(text: &str) -> &str {
    text.strip_prefix('/').filter(|version| !version.contains('/')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(rule: impl Fn(&str) -> Vec<String>, good: &[&str], bad: &[&str]) {
        for name in good {
            assert_eq!(rule(name), Vec::<String>::new(), "{name:?}");
        }
        for name in bad {
            assert!(!rule(name).is_empty(), "{name:?} must be refused");
        }
    }

    #[test]
    fn dns_names() {
        let long = "a".repeat(63);
        let longer = "a".repeat(64);
        check(dns1123_label, &["a", "0", "a-b", "0-0", &long], &["", "-", "a-", "-a", "A", "a.b", "a_b", "ä", &longer]);
        check(dns1123_subdomain, &["a", "a.b", "a.0-1.c", &longer], &["", ".", "a..b", "a.", "a.-b", "A.b", "a b"]);
        check(dns1123_subdomain, &[&"a".repeat(253)], &[&"a".repeat(254)]);
        check(dns1035_label, &["a", "a-0"], &["0a", "", "a.b", &longer]);
    }

    #[test]
    fn names_of_special_fields() {
        check(path_segment, &["system:node", "A b"], &[".", "..", "a/b", "a%b"]);
        check(label_key, &["a", "A.b_c-d", "a.b/c"], &["", "/a", "a/", "a/b/c", "A/b", "a/-b", "a b"]);
        check(label_value, &["", "a", "A.b_c-d"], &["-", "a-", "a b", "a/b", &"a".repeat(64)]);
        check(config_key, &["a", ".a", "A_b-c.d"], &["", ".", "..", "..a", "a/b", "a b"]);
        check(port_name, &["http", "p2p", "a-1"], &["", "80", "a--b", "-a", "Http", "sixteen-letters-"]);
    }

    #[test]
    fn wording() {
        assert_eq!(
            dns1123_subdomain("A"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
              start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(
            dns1123_label("A"),
            ["a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
              and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"]
        );
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
    }

    #[test]
    fn generated_names() {
        check(|base| generate_name(base, dns1123_subdomain), &["at-", "at", "a.b-"], &["", "-", "At-", "a..-"]);
        assert_eq!(generate_name_base("at-"), "at-");
        assert_eq!(generate_name_base(&"ä".repeat(40)).len(), 58);
        assert_eq!(generate_name_base(&format!("a{}", "ä".repeat(40))).len(), 57);
    }

    #[test]
    fn labels_and_annotations_of_an_object() {
        assert_eq!(labels("metadata.labels", &json!({"a/b": "c"})), []);
        let causes = labels("metadata.labels", &json!({"a b": "c", "d": "e f"}));
        assert_eq!(causes.len(), 2);
        assert!(causes[0].message.starts_with("Invalid value: \"a b\": name part must consist of"), "{}", causes[0]);
        assert!(causes[1].message.starts_with("Invalid value: \"e f\": a valid label must be"), "{}", causes[1]);

        assert_eq!(annotations("metadata.annotations", &json!({"Example.com/b": "any text\n"})), []);
        let causes = annotations("metadata.annotations", &json!({"a": "x".repeat(ANNOTATIONS_LIMIT)}));
        assert_eq!(causes[0].to_string(), "metadata.annotations: Too long: may not be more than 262144 bytes");
    }

    #[test]
    fn the_core_group_may_be_followed_by_a_slash() {
        for (text, expect) in [("/v1", "v1"), ("v1", "v1"), ("/", ""), ("", ""), ("apps/v1", "apps/v1"), ("v1/", "v1/")]
        {
            assert_eq!(api_version(text), expect);
        }
        assert_eq!(api_version("/apps/v1"), "/apps/v1", "not a version");
    }
}
