//! UUIDs, in the forms that Go's most common library reads.

/// The lengths of the parts between dashes, in bytes.
const PARTS: [usize; 5] = [8, 4, 4, 4, 12];

/// Returns the hexadecimal digits of a UUID in lower case. The error has the words of Go's library.
pub(super) fn digits(text: &str) -> Result<String, String> {
    const URN: &str = "urn:uuid:";
    let bytes = text.as_bytes();
    let bare = match bytes.len() {
        36 => bytes,
        45 => match bytes.split_at(URN.len()) {
            (begin, rest) if begin.eq_ignore_ascii_case(URN.as_bytes()) => rest,
            (begin, _) => return Err(format!("invalid urn prefix: {:?}", String::from_utf8_lossy(begin))),
        },
        38 => match bytes {
            [b'{', inner @ .., b'}'] => inner,
            _ => return Err("invalid bracketed UUID format".to_owned()),
        },
        32 => bytes,
        length => return Err(format!("invalid UUID length: {length}")),
    };
    let mut digits = String::with_capacity(32);
    for (place, byte) in bare.iter().enumerate() {
        let is_dash = bare.len() == 36 && [8, 13, 18, 23].contains(&place);
        match byte {
            b'-' if is_dash => {}
            _ if !is_dash && byte.is_ascii_hexdigit() => digits.push(char::from(byte.to_ascii_lowercase())),
            _ => return Err("invalid UUID format".to_owned()),
        }
    }
    Ok(digits)
}

/// Returns digits in the usual form, with dashes.
pub(super) fn with_dashes(digits: &str) -> String {
    let mut rest = digits.chars();
    PARTS.map(|length| rest.by_ref().take(length).collect::<String>()).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers are those of Kubernetes 1.36.3.
    #[test]
    fn all_forms_are_read() {
        let plain = "a671734a-e8e5-11e4-8fde-42010af09327";
        for text in [
            plain.to_owned(),
            plain.to_uppercase(),
            plain.replace('-', ""),
            format!("urn:uuid:{plain}"),
            format!("URN:UUID:{plain}"),
            format!("{{{plain}}}"),
        ] {
            assert_eq!(digits(&text).map(|digits| with_dashes(&digits)), Ok(plain.to_owned()), "{text}");
        }
        let refuses = |text: &str, why: &str| assert_eq!(digits(text), Err(why.to_owned()), "{text}");
        refuses("", "invalid UUID length: 0");
        refuses(&"x".repeat(36), "invalid UUID format");
        refuses(&"x".repeat(32), "invalid UUID format");
        refuses(&"a".repeat(45), "invalid urn prefix: \"aaaaaaaaa\"");
        refuses(&"a".repeat(38), "invalid bracketed UUID format");
        refuses("\u{e9}a671734-e8e5-11e4-8fde-42010af09327", "invalid UUID length: 37");
        refuses(&format!("{plain}\u{e9}"), "invalid bracketed UUID format");
    }
}
