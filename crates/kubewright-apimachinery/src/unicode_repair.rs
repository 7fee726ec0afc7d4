//! Replacement of what isn't Unicode in JSON, which Go's decoder makes rather than to refuse it.

/// Returns JSON text in which each byte that isn't UTF-8, and each escape of half of a surrogate pair, is replaced by
/// U+FFFD. Returns `None` if there is nothing to replace.
pub(crate) fn repaired(text: &[u8]) -> Option<Vec<u8>> {
    let mut valid = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        valid.push_str(chunk.valid());
        valid.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    let repaired = without_lone_surrogates(valid.as_bytes());
    (repaired != text).then_some(repaired)
}

fn without_lone_surrogates(text: &[u8]) -> Vec<u8> {
    let mut repaired = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let length = match (first, escaped_unit(rest)) {
            (_, Some(0xd800..=0xdbff)) if matches!(rest.get(6..).and_then(escaped_unit), Some(0xdc00..=0xdfff)) => 12,
            (_, Some(0xd800..=0xdfff)) => {
                repaired.extend_from_slice(b"\\ufffd");
                rest = &rest[6..];
                continue;
            }
            // Outside of strings, there is no backslash.
            (b'\\', _) if !after.is_empty() => 2,
            _ => 1,
        };
        repaired.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
    }
    repaired
}

/// Returns the UTF-16 unit that a text begins with as an escape.
fn escaped_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    // Without this, a sign would be taken for a digit.
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], expect: Option<&str>) {
        let repaired = repaired(text).map(|text| String::from_utf8(text).unwrap());
        assert_eq!(repaired.as_deref(), expect, "{text:?}");
    }

    #[test]
    fn what_is_unicode_remains() {
        for text in ["", "{}", r#"{"a":"\ud83d\ude00 \u0041 \\ud800 é"}"#, "\"\\", r#""\u12"#, r#""\ud8"#] {
            check(text.as_bytes(), None);
        }
    }

    #[test]
    fn halves_of_pairs_are_replaced() {
        check(br#""\ud800""#, Some(r#""\ufffd""#));
        check(br#""\uDC00\ud800""#, Some(r#""\ufffd\ufffd""#));
        check(br#""\ud800\ud83d\ude00x""#, Some(r#""\ufffd\ud83d\ude00x""#));
        check(br#""\\\ud800\u0041""#, Some(r#""\\\ufffd\u0041""#));
    }

    #[test]
    fn each_invalid_byte_is_replaced() {
        check(b"\"\xff\"", Some("\"\u{fffd}\""));
        check(b"\"a\xe2\x82b\"", Some("\"a\u{fffd}\u{fffd}b\""));
        check(b"\"\xed\xa0\x80\"", Some("\"\u{fffd}\u{fffd}\u{fffd}\""));
    }
}
