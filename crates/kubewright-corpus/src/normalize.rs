//! Removal of what differs between two servers, or two runs of one.

use serde_json::Value;

/// Replaces UIDs, times and address ranges in a message by placeholders, and cuts it at its first line break: what
/// follows is a difference in Go's notation.
pub(crate) fn normalize(text: &str) -> String {
    const RANGE: &str = "The range of valid IPs is ";
    let line = text.split('\n').next().unwrap_or_default();
    let mut words = Vec::new();
    for word in line.split(' ') {
        words.push(replace_tokens(word));
    }
    let mut line = words.join(" ");
    if let Some(start) = line.find(RANGE) {
        let from = start + RANGE.len();
        let length = line[from..].find([' ', ',', '"']).unwrap_or(line.len() - from);
        line.replace_range(from..from + length, "{range}");
    }
    line
}

/// Replaces the UIDs and times in a word.
fn replace_tokens(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        if let Some(length) = token(rest, UID) {
            text.push_str("{uid}");
            rest = &rest[length..];
        } else if let Some(length) = token(rest, TIME) {
            text.push_str("{time}");
            rest = &rest[length..];
        } else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    text
}

/// In these patterns, `x` is a hexadecimal digit, `0` a decimal one, and every other character itself.
pub(crate) const UID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
pub(crate) const TIME: &str = "0000-00-00T00:00:00Z";

/// Returns the length of a pattern if the text begins with it.
pub(crate) fn token(text: &str, pattern: &str) -> Option<usize> {
    let found = text.get(..pattern.len())?;
    let fits = found.bytes().zip(pattern.bytes()).all(|(byte, expected)| match expected {
        b'x' => byte.is_ascii_hexdigit(),
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    });
    fits.then_some(pattern.len())
}

/// The length of the random suffix of a generated name, and its characters.
pub(crate) const SUFFIX: (usize, &str) = (5, "bcdfghjklmnpqrstvwxz2456789");

/// Replaces the random suffix in the name of a created object that has only a `generateName`.
pub(crate) fn hide_suffix(text: &mut String, object: &Value) {
    let (length, characters) = SUFFIX;
    let prefix = object["metadata"]["generateName"].as_str().unwrap_or_default();
    if prefix.is_empty() || object["metadata"]["name"].is_string() {
        return;
    }
    let mut parts = text.split(prefix);
    let mut hidden = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let suffix = part.get(..length).filter(|suffix| suffix.chars().all(|c| characters.contains(c)));
        hidden += prefix;
        hidden += if suffix.is_some() { "{suffix}" } else { "" };
        hidden += &part[suffix.map_or(0, str::len)..];
    }
    *text = hidden;
}

/// Replaces the cluster IPs that the server allocated to an object.
pub(crate) fn hide_addresses(text: &mut String, object: &Value) {
    for address in object["spec"]["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        // Quoted, within a JSON string.
        *text = text.replace(&format!("\\\"{address}\\\""), "\\\"{cluster IP}\\\"");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn random_values_are_replaced() {
        let mut text = "\"A-\" and \"A-5vxnl\"".to_owned();
        hide_suffix(&mut text, &json!({"metadata": {"generateName": "A-"}}));
        assert_eq!(text, "\"A-\" and \"A-{suffix}\"");
        let mut text = r#"{"message": "\"10.0.0.1\" but 10.0.0.12"}"#.to_owned();
        hide_addresses(&mut text, &json!({"spec": {"clusterIPs": ["10.0.0.1"]}}));
        assert_eq!(text, r#"{"message": "\"{cluster IP}\" but 10.0.0.12"}"#);
    }

    #[test]
    fn what_differs_is_replaced() {
        let text = "a \"12345678-1234-1234-1234-123456789abc\" at 2024-01-02T03:04:05Z. The range of valid IPs is \
                    10.0.0.0/24";
        assert_eq!(normalize(text), "a \"{uid}\" at {time}. The range of valid IPs is {range}");
        assert_eq!(normalize("ä\nsecond line"), "ä");
    }
}
